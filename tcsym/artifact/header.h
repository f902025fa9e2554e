/* SPDX-License-Identifier: Apache-2.0 */
/* @NAME@: a kernel made by tcsym. Link with -l@NAME@.
 *
 * Arguments, in order, all dense and row-major:
@ARGUMENTS@
 * Sizes: @SIZES@. Given by the caller, as no input has them: @GIVEN@.
 *
 * Functions return 0, or an error code, and @NAME@_error() says what it was in this thread.
 * Outputs of a call that failed are unspecified. All may be called by several threads at once.
 */
#ifndef @GUARD@
#define @GUARD@
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

/* Codes: @ERRORS@ */

/* Runs on memory: `buffers` of all arguments, values of all sizes in the order above. */
TCSYM_API int @NAME@_run(void *const *buffers, const int64_t *sizes);

/* Runs on tensors, whose shapes give the sizes and are checked; `given`: values of the sizes that
 * the caller gives. */
TCSYM_API int @NAME@_tensors(DLTensor *const *tensors, const int64_t *given);

/* Whether a call of these sizes may be made: as `@NAME@_run`, which asks it first. */
TCSYM_API int @NAME@_check(const int64_t *sizes);

/* Extents of all arguments, one after the other (@EXTENTS@ numbers): shapes of outputs are last. */
TCSYM_API void @NAME@_extents(const int64_t *sizes, int64_t *extents);

/* The last error of this thread; the code that runs here, by its kind of processor. */
TCSYM_API const char *@NAME@_error(void);
TCSYM_API const char *@NAME@_level(void);

@CONSTANTS@@CUDA@/* Most threads of a call; 1 at first. */
TCSYM_API void @NAME@_set_threads(int n);

/* Gives back all memory, before the library is unloaded; no call runs meanwhile. */
TCSYM_API void @NAME@_release(void);

/* As `@NAME@_run`, for tcsym itself. */
struct Team;
TCSYM_API int32_t @NAME@_enter(void *const *buffers, const int64_t *sizes,
                               const struct Team *context);

#ifdef __cplusplus
}
#endif
#endif
