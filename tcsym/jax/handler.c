/* SPDX-License-Identifier: Apache-2.0 */
/* What XLA calls, for all kernels: buffers of its foreign functions -> tensors of an artifact, which
 * the call names. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <xla/ffi/api/c_api.h>

typedef struct Kernel {
    const char *name;
    int (*run)(DLTensor *const *tensors, const int64_t *given);
    const char *(*error)(void);
    int inputs, outputs, given;
    const struct Kernel *next;
} Kernel;

/* Kernels are added at the front and stay for ever, so that calls may read while others add. */
static const Kernel *kernels[256];

static const Kernel **chain_of(const char *name, size_t length) {
    uint32_t hash = 2166136261u;
    for (size_t k = 0; k < length; k++)
        hash = (hash ^ (unsigned char)name[k]) * 16777619u;
    return kernels + (hash ^ hash >> 16) % 256;
}

/* The caller holds a lock against other additions. */
TCSYM_API void tcsym_add(Kernel *kernel) {
    const Kernel **chain = chain_of(kernel->name, strlen(kernel->name));
    kernel->next = *chain;
    __atomic_store_n(chain, kernel, __ATOMIC_RELEASE);
}

static const Kernel *kernel_of(const char *name, size_t length) {
    const Kernel *k = __atomic_load_n(chain_of(name, length), __ATOMIC_ACQUIRE);
    while (k && (strlen(k->name) != length || memcmp(k->name, name, length)))
        k = k->next;
    return k;
}

static XLA_FFI_Error *failed(const XLA_FFI_Api *api, XLA_FFI_Error_Code code, const char *message) {
    XLA_FFI_Error_Create_Args args = {.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE,
                                      .message = message,
                                      .errc = code};
    return api->XLA_FFI_Error_Create(&args);
}

static XLA_FFI_Error *wrong(const XLA_FFI_Api *api, const char *message) {
    return failed(api, XLA_FFI_Error_Code_INVALID_ARGUMENT, message);
}

/* DLPack's name of a type; one with 0 bits for what no kernel has. */
static DLDataType type_of(XLA_FFI_DataType type) {
    switch (type) {
    case XLA_FFI_DataType_PRED: return (DLDataType){6, 8, 1};
    case XLA_FFI_DataType_S8: return (DLDataType){0, 8, 1};
    case XLA_FFI_DataType_S16: return (DLDataType){0, 16, 1};
    case XLA_FFI_DataType_S32: return (DLDataType){0, 32, 1};
    case XLA_FFI_DataType_S64: return (DLDataType){0, 64, 1};
    case XLA_FFI_DataType_U8: return (DLDataType){1, 8, 1};
    case XLA_FFI_DataType_U16: return (DLDataType){1, 16, 1};
    case XLA_FFI_DataType_U32: return (DLDataType){1, 32, 1};
    case XLA_FFI_DataType_U64: return (DLDataType){1, 64, 1};
    case XLA_FFI_DataType_F16: return (DLDataType){2, 16, 1};
    case XLA_FFI_DataType_F32: return (DLDataType){2, 32, 1};
    case XLA_FFI_DataType_F64: return (DLDataType){2, 64, 1};
    case XLA_FFI_DataType_BF16: return (DLDataType){4, 16, 1};
    default: return (DLDataType){0, 0, 1};
    }
}

static DLTensor tensor_of(const XLA_FFI_Buffer *buffer) {
    return (DLTensor){.data = buffer->data,
                      .device = {1, 0},
                      .ndim = (int32_t)buffer->rank,
                      .dtype = type_of(buffer->dtype),
                      .shape = buffer->dims};
}

/* XLA asks first which version of its interface this is, in an extension of the call. */
static int is_question(const XLA_FFI_CallFrame *frame) {
    XLA_FFI_Extension_Base *extension = frame->extension_start;
    if (!extension || extension->type != XLA_FFI_Extension_Metadata)
        return 0;
    XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)extension)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    metadata->traits = 0;
    return 1;
}

/* Sizes that the caller gives, of which there are `n` > 0: numbers of the program, or where it has
 * symbols for them an array behind the others. */
static const int64_t *sizes_of(const XLA_FFI_CallFrame *frame, int n, int64_t *space) {
    if (frame->attrs.size == 2) {
        const XLA_FFI_Array *array = frame->attrs.attrs[1];
        int fits = frame->attrs.types[1] == XLA_FFI_AttrType_ARRAY && array->size == (size_t)n &&
                   array->dtype == XLA_FFI_DataType_S64;
        return fits ? array->data : NULL;
    }
    const XLA_FFI_Buffer *buffer = frame->args.args[frame->args.size - 1];
    if (buffer->rank != 1 || buffer->dims[0] != n)
        return NULL;
    for (int k = 0; k < n; k++)
        space[k] = buffer->dtype == XLA_FFI_DataType_S64 ? ((const int64_t *)buffer->data)[k]
                                                         : ((const int32_t *)buffer->data)[k];
    return space;
}

/* Attributes, which XLA sorts by name: `kernel`, and perhaps `sizes`. */
TCSYM_API XLA_FFI_Error *tcsym_handler(XLA_FFI_CallFrame *frame) {
    if (is_question(frame))
        return NULL;
    if (frame->attrs.size < 1 || frame->attrs.types[0] != XLA_FFI_AttrType_STRING)
        return wrong(frame->api, "the call names no kernel");
    const XLA_FFI_ByteSpan *name = frame->attrs.attrs[0];
    const Kernel *kernel = kernel_of(name->ptr, name->len);
    if (!kernel) {
        char text[256];
        snprintf(text, sizeof text, "kernel %.*s is not here: `tcsym.jax.register` it",
                 (int)(name->len < 150 ? name->len : 150), name->ptr);
        return failed(frame->api, XLA_FFI_Error_Code_NOT_FOUND, text);
    }
    int is_array = kernel->given > 0 && frame->attrs.size == 1;
    if (frame->args.size != kernel->inputs + is_array || frame->rets.size != kernel->outputs)
        return wrong(frame->api, "another number of arguments or results than the kernel has");
    int64_t space[kernel->given + 1];
    const int64_t *given = kernel->given ? sizes_of(frame, kernel->given, space) : space;
    if (!given)
        return wrong(frame->api, "sizes are not what the kernel needs");
    int n = kernel->inputs + kernel->outputs;
    DLTensor tensors[n + 1], *places[n + 1];
    for (int k = 0; k < n; k++) {
        int result = k - kernel->inputs;
        tensors[k] = tensor_of(result < 0 ? frame->args.args[k] : frame->rets.rets[result]);
        places[k] = tensors + k;
    }
    int error = kernel->run(places, given);
    if (!error)
        return NULL;
    return failed(frame->api,
                  error == ERROR_BOUNDS   ? XLA_FFI_Error_Code_OUT_OF_RANGE
                  : error == ERROR_MEMORY ? XLA_FFI_Error_Code_RESOURCE_EXHAUSTED
                                          : XLA_FFI_Error_Code_INVALID_ARGUMENT,
                  kernel->error());
}
