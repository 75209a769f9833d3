/*
 * The part of the CUDA driver's C interface that overlapd calls: a table of
 * functions that dlsym fills. Nothing here needs CUDA's own header or library
 * to build.
 */
#ifndef OVERLAPD_CUDA_ABI_H
#define OVERLAPD_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t cu_result; /* 0 is success */
typedef int32_t cu_device;
typedef uint64_t cu_address;
typedef void *cu_context;
typedef void *cu_stream;
typedef void *cu_event;

/* X(name, symbol, parameters): symbol is what the driver exports, with the
 * suffix of the version that these parameters belong to. */
#define CUDA_FUNCTIONS(X)                                                                   \
	X(init, "cuInit", (unsigned))                                                           \
	X(device_count, "cuDeviceGetCount", (int *))                                            \
	X(device_get, "cuDeviceGet", (cu_device *, int))                                        \
	X(device_name, "cuDeviceGetName", (char *, int, cu_device))                             \
	X(device_uuid, "cuDeviceGetUuid_v2", (unsigned char[16], cu_device))                    \
	X(device_attribute, "cuDeviceGetAttribute", (int *, int, cu_device))                    \
	X(device_memory, "cuDeviceTotalMem_v2", (size_t *, cu_device))                          \
	X(context_flags, "cuDevicePrimaryCtxSetFlags_v2", (cu_device, unsigned))                \
	X(context_retain, "cuDevicePrimaryCtxRetain", (cu_context *, cu_device))                \
	X(context_release, "cuDevicePrimaryCtxRelease_v2", (cu_device))                         \
	X(context_set, "cuCtxSetCurrent", (cu_context))                                         \
	X(stream_create, "cuStreamCreate", (cu_stream *, unsigned))                             \
	X(stream_destroy, "cuStreamDestroy_v2", (cu_stream))                                    \
	X(stream_sync, "cuStreamSynchronize", (cu_stream))                                      \
	X(event_create, "cuEventCreate", (cu_event *, unsigned))                                \
	X(event_destroy, "cuEventDestroy_v2", (cu_event))                                       \
	X(event_record, "cuEventRecord", (cu_event, cu_stream))                                 \
	X(event_query, "cuEventQuery", (cu_event))                                              \
	X(event_sync, "cuEventSynchronize", (cu_event))                                         \
	X(event_elapsed, "cuEventElapsedTime", (float *, cu_event, cu_event))                   \
	X(memory_alloc, "cuMemAlloc_v2", (cu_address *, size_t))                                \
	X(memory_free, "cuMemFree_v2", (cu_address))                                            \
	X(memory_info, "cuMemGetInfo_v2", (size_t *, size_t *))                                 \
	X(copy_in, "cuMemcpyHtoDAsync_v2", (cu_address, const void *, size_t, cu_stream))       \
	X(copy_out, "cuMemcpyDtoHAsync_v2", (void *, cu_address, size_t, cu_stream))            \
	X(host_register, "cuMemHostRegister_v2", (void *, size_t, unsigned))                    \
	X(host_unregister, "cuMemHostUnregister", (void *))

struct cuda {
#define CUDA_FIELD(name, symbol, parameters) cu_result(*name) parameters;
	CUDA_FUNCTIONS(CUDA_FIELD)
#undef CUDA_FIELD
};

#endif
