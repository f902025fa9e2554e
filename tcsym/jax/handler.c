/* What XLA calls: buffers of its foreign functions -> tensors of an artifact. The text before this
 * one names the kernel. */

static XLA_FFI_Error *failed(const XLA_FFI_Api *api, XLA_FFI_Error_Code code, const char *message) {
    XLA_FFI_Error_Create_Args args = {.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE,
                                      .message = message,
                                      .errc = code};
    return api->XLA_FFI_Error_Create(&args);
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

/* The only attribute is the array of sizes that the caller gives. */
TCSYM_API XLA_FFI_Error *tcsym_handler(XLA_FFI_CallFrame *frame) {
    if (is_question(frame))
        return NULL;
    if (frame->args.size != N_INPUTS || frame->rets.size != N_OUTPUTS ||
        frame->attrs.size != (N_GIVEN > 0))
        return failed(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT,
                      "another number of arguments, results or sizes than the kernel has");
    const int64_t *given = NULL;
    if (N_GIVEN) {
        const XLA_FFI_Array *array = frame->attrs.attrs[0];
        if (frame->attrs.types[0] != XLA_FFI_AttrType_ARRAY || array->size != N_GIVEN ||
            array->dtype != XLA_FFI_DataType_S64)
            return failed(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT, "sizes are no integers");
        given = array->data;
    }
    DLTensor tensors[N_INPUTS + N_OUTPUTS], *places[N_INPUTS + N_OUTPUTS];
    for (int k = 0; k < N_INPUTS + N_OUTPUTS; k++) {
        tensors[k] = tensor_of(k < N_INPUTS ? frame->args.args[k] : frame->rets.rets[k - N_INPUTS]);
        places[k] = tensors + k;
    }
    int error = NAME(_tensors)(places, given);
    if (!error)
        return NULL;
    return failed(frame->api,
                  error == ERROR_BOUNDS   ? XLA_FFI_Error_Code_OUT_OF_RANGE
                  : error == ERROR_MEMORY ? XLA_FFI_Error_Code_RESOURCE_EXHAUSTED
                                          : XLA_FFI_Error_Code_INVALID_ARGUMENT,
                  NAME(_error)());
}
