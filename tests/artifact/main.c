/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of an artifact by its header, and what they say of wrong ones. */
#include "mlp.h"
#include <stdio.h>

int main(void) {
    float x[2 * 3] = {1, 2, 3, 4, 5, 6}, w[3 * 2] = {1, 0, 0, 1, 1, -1}, b[2] = {0, 1}, y[2 * 2];
    void *buffers[] = {x, w, b, y};
    int64_t sizes[] = {2, 3, 2}, extents[7];
    mlp_extents(sizes, extents);
    printf("%lld x %lld\n", (long long)extents[5], (long long)extents[6]);
    int code = mlp_run(buffers, sizes);
    printf("%d: %g %g %g %g\n", code, y[0], y[1], y[2], y[3]);

    int64_t shapes[][2] = {{2, 3}, {3, 2}, {2, 2}}, odd[2] = {4, 2};
    DLDevice cpu = {1, 0};
    DLDataType type = {2, 32, 1}, wide = {2, 64, 1};
    DLTensor tensors[] = {
        {x, cpu, 2, type, shapes[0], 0, 0},
        {w, cpu, 2, type, shapes[1], 0, 0},
        {b, cpu, 1, type, shapes[2], 0, 0},
        {y, cpu, 2, type, shapes[2], 0, 0},
    };
    DLTensor *given[] = {tensors, tensors + 1, tensors + 2, tensors + 3};
    y[3] = 0;
    code = mlp_tensors(given, 0);
    printf("%d: %g\n", code, y[3]);
    tensors[1].shape = odd;
    code = mlp_tensors(given, 0);
    printf("%d: %s\n", code, mlp_error());
    tensors[1].dtype = wide;
    code = mlp_tensors(given, 0);
    printf("%d: %s\n", code, mlp_error());
    sizes[0] = 9;
    code = mlp_run(buffers, sizes);
    printf("%d: %s\n", code, mlp_error());
    return 0;
}
