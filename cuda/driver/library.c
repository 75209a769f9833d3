#include "library.h"

#include <dlfcn.h>
#include <time.h>

const char *overlapd_cuda_load(struct cuda *t, const char *path, const char **missing) {
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	*missing = NULL;
	if (handle == NULL)
		return dlerror();
#define CUDA_LOAD(name, symbol, parameters)                  \
	t->name = (cu_result(*) parameters)dlsym(handle, symbol); \
	if (t->name == NULL && *missing == NULL)                 \
		*missing = symbol;
	CUDA_FUNCTIONS(CUDA_LOAD)
#undef CUDA_LOAD
	if (*missing != NULL)
		dlclose(handle);
	return NULL;
}

/* Defines overlapd_cuda_NAME: NAME with the context current on this thread. */
#define IN_CONTEXT(name, declared, passed)                                     \
	cu_result overlapd_cuda_##name declared {                                  \
		cu_result r = t->context_set(context);                                 \
                                                                               \
		return r != 0 ? r : t->name passed;                                    \
	}

IN_CONTEXT(stream_create, (const struct cuda *t, cu_context context, cu_stream *stream, unsigned flags), (stream, flags))
IN_CONTEXT(stream_destroy, (const struct cuda *t, cu_context context, cu_stream stream), (stream))
IN_CONTEXT(stream_sync, (const struct cuda *t, cu_context context, cu_stream stream), (stream))
IN_CONTEXT(event_create, (const struct cuda *t, cu_context context, cu_event *event, unsigned flags), (event, flags))
IN_CONTEXT(event_destroy, (const struct cuda *t, cu_context context, cu_event event), (event))
IN_CONTEXT(event_record, (const struct cuda *t, cu_context context, cu_event event, cu_stream stream), (event, stream))
IN_CONTEXT(event_elapsed, (const struct cuda *t, cu_context context, float *milliseconds, cu_event from, cu_event to),
           (milliseconds, from, to))
IN_CONTEXT(memory_alloc, (const struct cuda *t, cu_context context, cu_address *address, size_t bytes), (address, bytes))
IN_CONTEXT(memory_free, (const struct cuda *t, cu_context context, cu_address address), (address))
IN_CONTEXT(memory_info, (const struct cuda *t, cu_context context, size_t *free, size_t *total), (free, total))
IN_CONTEXT(copy_in, (const struct cuda *t, cu_context context, cu_address to, const void *from, size_t bytes, cu_stream stream),
           (to, from, bytes, stream))
IN_CONTEXT(copy_out, (const struct cuda *t, cu_context context, void *to, cu_address from, size_t bytes, cu_stream stream),
           (to, from, bytes, stream))
IN_CONTEXT(host_register, (const struct cuda *t, cu_context context, void *memory, size_t bytes, unsigned flags),
           (memory, bytes, flags))
IN_CONTEXT(host_unregister, (const struct cuda *t, cu_context context, void *memory), (memory))

static int64_t monotonic_nanos(void) {
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Asks again and again for so long, and then waits as the event was made to. */
cu_result overlapd_cuda_event_sync(const struct cuda *t, cu_context context, cu_event event, int64_t poll_nanos) {
	enum { NOT_READY = 600 };
	cu_result r = t->context_set(context);

	if (r != 0 || poll_nanos <= 0)
		return r != 0 ? r : t->event_sync(event);
	for (int64_t end = monotonic_nanos() + poll_nanos;;) {
		r = t->event_query(event);
		if (r != NOT_READY)
			return r;
		if (monotonic_nanos() >= end)
			return t->event_sync(event);
	}
}

/* What needs no context. cgo cannot call a function pointer. */
cu_result overlapd_cuda_init(const struct cuda *t) { return t->init(0); }
cu_result overlapd_cuda_device_count(const struct cuda *t, int *count) { return t->device_count(count); }
cu_result overlapd_cuda_context_retain(const struct cuda *t, cu_context *context, cu_device device, unsigned flags) {
	cu_result r = t->context_flags(device, flags);

	return r != 0 ? r : t->context_retain(context, device);
}
cu_result overlapd_cuda_context_release(const struct cuda *t, cu_device device) { return t->context_release(device); }

cu_result overlapd_cuda_describe(const struct cuda *t, int ordinal, struct overlapd_device *d) {
	enum { CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76, MPS_ENABLED = 133 };
	cu_result r = t->device_get(&d->device, ordinal);

	if (r == 0)
		r = t->device_name(d->name, sizeof d->name, d->device);
	if (r == 0)
		r = t->device_uuid(d->uuid, d->device);
	if (r == 0)
		r = t->device_attribute(&d->major, CAPABILITY_MAJOR, d->device);
	if (r == 0)
		r = t->device_attribute(&d->minor, CAPABILITY_MINOR, d->device);
	if (r == 0 && t->device_attribute(&d->mps, MPS_ENABLED, d->device) != 0)
		d->mps = -1;
	return r != 0 ? r : t->device_memory(&d->bytes, d->device);
}
