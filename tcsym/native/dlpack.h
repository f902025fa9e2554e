/* SPDX-License-Identifier: Apache-2.0 */
/* DLPack 1: how array libraries show each other their memory. Only what we use of it; the structs
 * are those that the standard fixes (https://dmlc.github.io/dlpack/latest/c_api.html). */
#ifndef TCSYM_DLPACK_H
#define TCSYM_DLPACK_H

#include <stdint.h>

enum { DLPACK_MAJOR = 1, DLPACK_CPU = 1, DLPACK_CUDA = 2, DLPACK_FLOAT = 2 };

typedef struct {
    uint32_t major, minor;
} DLPackVersion;

typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;

static inline uint32_t code_of(DLDataType type) {
    return type.code | (uint32_t)type.bits << 8 | (uint32_t)type.lanes << 16;
}

typedef struct {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides; /* in elements */
    uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

/* A type's `__dlpack_c_exchange_api__`: a capsule "dlpack_exchange_api" of this table. */
typedef struct DLPackExchangeAPI {
    DLPackVersion version;
    const struct DLPackExchangeAPI *older;
    int (*allocate)(DLTensor *, DLManagedTensorVersioned **, void *,
                    void (*)(void *, const char *, const char *));
    int (*managed_from_object)(void *object, DLManagedTensorVersioned **);
    int (*object_from_managed)(DLManagedTensorVersioned *, void **object); /* takes the tensor */
    int (*tensor_from_object)(void *object, DLTensor *); /* as long as the object is there */
    int (*current_stream)(int32_t device, int32_t id, void **stream);
} DLPackExchangeAPI;

#endif
