/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of an artifact by its header: those of its folder, then others, then wrong ones. */
#include "affine.h"
#include <stdio.h>

int main(void) {
    float x[2 * 3] = {1, 2, 3, 4, 5, 6}, y[2 * 2];
    float u[3 * 2] = {1, 0, 0, 1, 1, -1}, v[2] = {10, 20};
    void *buffers[] = {x, y}, *constants[] = {u, v}, *inside[] = {x, v};
    int64_t sizes[] = {2, 3, 2};
    int code = affine_run(buffers, sizes);
    printf("%d: %g %g %g %g %s\n", code, y[0], y[1], y[2], y[3], code ? affine_error() : "");
    code = affine_bind(constants, sizes);
    code |= affine_run(buffers, sizes);
    printf("%d: %g %g %g %g\n", code, y[0], y[1], y[2], y[3]);
    code = affine_run(inside, (int64_t[]){1, 3, 2});
    printf("%d: %s\n", code, affine_error());
    code = affine_run(buffers, (int64_t[]){2, 2, 2});
    printf("%d: %s\n", code, affine_error());

    int64_t shapes[][2] = {{3, 2}, {3}};
    DLTensor tensors[] = {
        {u, {1, 0}, 2, {2, 32, 1}, shapes[0], 0, 0},
        {v, {1, 0}, 1, {2, 32, 1}, shapes[1], 0, 0},
    };
    DLTensor *given[] = {tensors, tensors + 1};
    code = affine_bind_tensors(given);
    printf("%d: %s\n", code, affine_error());
    shapes[1][0] = 2;
    printf("%d\n", affine_bind_tensors(given));
    code = affine_bind(0, 0);
    code |= affine_run(buffers, sizes);
    printf("%d: %g\n", code, y[0]);
    return 0;
}
