/* mlp: a kernel made by tcsym. Link with -lmlp.
 *
 * Arguments, in order, all dense and row-major:
 *   0: float32(B, K) X
 *   1: float32(K, N) W
 *   2: float32(N) b
 *   3: float32(B, N) Y (written)
 * Sizes: B, K, N. Given by the caller, as no input has them: none.
 *
 * Functions return 0, or an error code, and mlp_error() says what it was in this thread.
 * Outputs of a call that failed are unspecified. All may be called by several threads at once.
 */
#ifndef TCSYM_MLP_H
#define TCSYM_MLP_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* DLPack's tensor (https://dmlc.github.io/dlpack), if dlpack.h was not included before. */
#ifndef DLPACK_DLPACK_H_
#ifndef TCSYM_DLTENSOR
#define TCSYM_DLTENSOR
typedef struct {
    int32_t device_type, device_id;
} DLDevice;
typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;
#endif
#endif

#ifndef TCSYM_API
#define TCSYM_API __attribute__((visibility("default")))
#endif

/* Codes: ERROR_CALL = 1, ERROR_RANK = 2, ERROR_TYPE = 3, ERROR_SIZE = 4, ERROR_BOUNDS = 5, ERROR_INIT = 6, ERROR_DEVICE = 7, ERROR_LAYOUT = 8, ERROR_TARGET = 9, ERROR_MEMORY = 10, ERROR_IMMUTABLE = 11 */

/* Runs on memory: `buffers` of all arguments, values of all sizes in the order above. */
TCSYM_API int mlp_run(void *const *buffers, const int64_t *sizes);

/* Runs on tensors, whose shapes give the sizes and are checked; `given`: values of the sizes that
 * the caller gives. */
TCSYM_API int mlp_tensors(DLTensor *const *tensors, const int64_t *given);

/* Extents of all arguments, one after the other (7 numbers): shapes of outputs are last. */
TCSYM_API void mlp_extents(const int64_t *sizes, int64_t *extents);

/* The last error of this thread; the code that runs here, by its kind of processor. */
TCSYM_API const char *mlp_error(void);
TCSYM_API const char *mlp_level(void);

/* Most threads of a call; 1 at first. */
TCSYM_API void mlp_set_threads(int n);

/* As `mlp_run`, for tcsym itself. */
struct Team;
TCSYM_API int32_t mlp_enter(void *const *buffers, const int64_t *sizes,
                               const struct Team *context);

#ifdef __cplusplus
}
#endif
#endif
