#ifndef OVERLAPD_CUDA_LIBRARY_H
#define OVERLAPD_CUDA_LIBRARY_H

#include "abi.h"

/* Fills the table. Returns why the library cannot be loaded, or NULL and the
 * first function that it lacks, or NULL twice. */
const char *overlapd_cuda_load(struct cuda *t, const char *path, const char **missing);

struct overlapd_device {
	cu_device device;
	int major, minor;
	int mps; /* 1 if its contexts are shared through MPS, 0 if not, -1 if the driver does not say */
	size_t bytes;
	unsigned char uuid[16];
	char name[256];
};

cu_result overlapd_cuda_init(const struct cuda *t);
cu_result overlapd_cuda_device_count(const struct cuda *t, int *count);
cu_result overlapd_cuda_describe(const struct cuda *t, int ordinal, struct overlapd_device *d);
cu_result overlapd_cuda_context_retain(const struct cuda *t, cu_context *context, cu_device device, unsigned flags);
cu_result overlapd_cuda_context_release(const struct cuda *t, cu_device device);

/* Each makes the context current on the calling thread first. */
cu_result overlapd_cuda_stream_create(const struct cuda *t, cu_context context, cu_stream *stream, unsigned flags);
cu_result overlapd_cuda_stream_destroy(const struct cuda *t, cu_context context, cu_stream stream);
cu_result overlapd_cuda_stream_sync(const struct cuda *t, cu_context context, cu_stream stream);
cu_result overlapd_cuda_event_create(const struct cuda *t, cu_context context, cu_event *event, unsigned flags);
cu_result overlapd_cuda_event_destroy(const struct cuda *t, cu_context context, cu_event event);
cu_result overlapd_cuda_event_record(const struct cuda *t, cu_context context, cu_event event, cu_stream stream);
cu_result overlapd_cuda_event_sync(const struct cuda *t, cu_context context, cu_event event, int64_t poll_nanos);
cu_result overlapd_cuda_event_elapsed(const struct cuda *t, cu_context context, float *milliseconds, cu_event from, cu_event to);
cu_result overlapd_cuda_memory_alloc(const struct cuda *t, cu_context context, cu_address *address, size_t bytes);
cu_result overlapd_cuda_memory_free(const struct cuda *t, cu_context context, cu_address address);
cu_result overlapd_cuda_memory_info(const struct cuda *t, cu_context context, size_t *free, size_t *total);
cu_result overlapd_cuda_copy_in(const struct cuda *t, cu_context context, cu_address to, const void *from, size_t bytes, cu_stream stream);
cu_result overlapd_cuda_copy_out(const struct cuda *t, cu_context context, void *to, cu_address from, size_t bytes, cu_stream stream);
cu_result overlapd_cuda_host_register(const struct cuda *t, cu_context context, void *memory, size_t bytes, unsigned flags);
cu_result overlapd_cuda_host_unregister(const struct cuda *t, cu_context context, void *memory);

#endif
