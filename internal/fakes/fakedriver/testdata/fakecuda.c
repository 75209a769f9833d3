/*
 * A driver without a GPU, for tests: cc -shared -fPIC -o libcuda.so.1 fakecuda.c
 *
 * It keeps what a test must see: device memory in a table, copies in a queue
 * for each stream, and counts of what is open. A copy runs as late as the real
 * driver may run it: those into and within the device when a later mark is
 * recorded, those to the host only when somebody waits for them. So a
 * synchronization that is missing gives wrong bytes, every time.
 *
 * A page of 64-bit words, shared with the test, tells how it behaves and what
 * happened. FAKE_CUDA names its file. The words are in page.go too.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { /* what the test sets */
	MEMORY_LIMIT,   /* bytes of device memory */
	IDENTITY,       /* 1: device addresses can be used by the host as well */
	DEVICES,        /* how many there are */
	MEMORY_TAKEN,   /* bytes that others hold */
	UNREADY,        /* so many questions for an event are answered with no */
	THREAD,         /* whose records of events are counted */
	MPS,            /* 0: the driver does not know of it, 1: off, 2: on */
	KNOBS = 16,     /* what happened: */
	BYTES = KNOBS,
	ALLOCATIONS,
	STREAMS,
	EVENTS,
	PINS,
	CONTEXTS,
	PENDING, /* copies that are queued */
	COPIES_IN,
	COPIES_OUT,
	COPIES,
	SYNCS,   /* of streams and events */
	FAULTS,  /* uses of what is not there, and calls without a context */
	PEAK,    /* of BYTES */
	STICKY,  /* the result that every call gives from now on, 0 if none */
	FLAGS,   /* of the context */
	PRIORITY, /* of the last stream */
	RECORDS,  /* of events by the thread that is counted */
	CALLS = 64,
	FAIL_AFTER = 128, /* by call: fail at the n-th call from now, 0 for never */
	FAIL_WITH = 192,  /* by call: the result */
	WORDS = 512
};

enum call {
	INIT, COUNT, GET, NAME, UUID, ATTRIBUTE, TOTAL, SET_FLAGS, RETAIN, RELEASE, SET_CURRENT, PRIORITIES,
	STREAM_CREATE, STREAM_DESTROY, STREAM_SYNC, EVENT_CREATE, EVENT_DESTROY, EVENT_RECORD, EVENT_QUERY, EVENT_SYNC,
	ELAPSED, ALLOC, FREE, INFO, COPY_IN, COPY_OUT, COPY, PIN, UNPIN,
};

enum {
	INVALID = 1, OUT_OF_MEMORY = 2, NO_CONTEXT = 201, BAD_HANDLE = 400, NOT_READY = 600,
	PINNED_ALREADY = 712, NOT_PINNED = 713, NOT_SUPPORTED = 801,
};
enum { MAX_BLOCKS = 1 << 16, MAX_COPIES = 1 << 16, MAX_HANDLES = 1 << 12 };

static uint64_t nothing[WORDS];
static uint64_t *page = nothing;

struct block {
	uint64_t address;
	char *memory;
	size_t bytes;
};
static struct block blocks[MAX_BLOCKS];
static size_t block_count;
static uint64_t next_address = 0x500000000000;

struct copy {
	int kind; /* COPY_IN, COPY_OUT or COPY */
	uint64_t to, from, stream;
	size_t bytes;
	uint64_t sequence;
};
static struct copy queue[MAX_COPIES];
static size_t queued;
static uint64_t sequence;

/* A stream or an event: its handle is its place + 1 in here, plus a base. */
struct mark {
	int open;
	uint64_t stream, sequence, time;
};
static struct mark streams[MAX_HANDLES], events[MAX_HANDLES];
static const uint64_t STREAM_BASE = 0x1000, EVENT_BASE = 0x100000, CONTEXT_BASE = 0x77;
static uint64_t now; /* rises with everything that happens */
static __thread uint64_t current;

struct pin {
	char *memory;
	size_t bytes;
};
static struct pin pins[MAX_HANDLES];

__attribute__((constructor)) static void open_page(void) {
	const char *path = getenv("FAKE_CUDA");
	int fd = path != NULL ? open(path, O_RDWR) : -1;
	void *mapped = fd >= 0 ? mmap(NULL, WORDS * sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;

	if (mapped != MAP_FAILED)
		page = mapped;
	else
		nothing[MEMORY_LIMIT] = 1 << 30, nothing[DEVICES] = 1;
	if (fd >= 0)
		close(fd);
}

static int fault(const char *what) {
	fprintf(stderr, "fake CUDA: %s\n", what);
	page[FAULTS]++;
	return INVALID;
}

static int sticky(int r) { return r >= 700 && r < 800 && r != PINNED_ALREADY && r != NOT_PINNED; }

/* Every call begins here: it counts, and fails where the test says so. */
static int begin(enum call c, int needs_context) {
	now++;
	page[CALLS + c]++;
	if (page[FAIL_AFTER + c] != 0 && --page[FAIL_AFTER + c] == 0) {
		if (sticky((int)page[FAIL_WITH + c]))
			page[STICKY] = page[FAIL_WITH + c];
		return (int)page[FAIL_WITH + c];
	}
	if (page[STICKY] != 0 && c > RETAIN)
		return (int)page[STICKY];
	if (needs_context && (current == 0 || page[CONTEXTS] == 0)) {
		fault("a call without a current context");
		return NO_CONTEXT;
	}
	return 0;
}
#define BEGIN(c, needs_context)             \
	do {                                    \
		int begun = begin(c, needs_context); \
		if (begun != 0)                     \
			return begun;                   \
	} while (0)

/* The host's view of device memory, NULL for what is not inside of one block.
 * Where the host can use device addresses, what is in no block at all may be
 * memory that somebody else has allocated. */
static char *device_memory(uint64_t address, size_t bytes) {
	int touched = 0;

	for (size_t i = 0; i < block_count; i++) {
		struct block b = blocks[i];

		if (address >= b.address && address + bytes <= b.address + b.bytes)
			return b.memory + (address - b.address);
		touched |= address < b.address + b.bytes && b.address < address + bytes;
	}
	if (page[IDENTITY] && !touched)
		return (char *)address;
	fault("a copy outside of device memory");
	return NULL;
}

static void do_copy(struct copy *c) {
	char *to = c->kind == COPY_OUT ? (char *)c->to : device_memory(c->to, c->bytes);
	char *from = c->kind == COPY_IN ? (char *)c->from : device_memory(c->from, c->bytes);

	if (to != NULL && from != NULL)
		memmove(to, from, c->bytes);
}

/* Runs the copies of a stream that were queued before, in their order. Without
 * to_host it stops at the first one to the host, as those after it would. */
static void drain(uint64_t stream, uint64_t before, int to_host) {
	size_t kept = 0;
	int stopped = 0;

	for (size_t i = 0; i < queued; i++) {
		int mine = queue[i].stream == stream && queue[i].sequence < before;

		if (mine && queue[i].kind == COPY_OUT && !to_host)
			stopped = 1;
		if (mine && !stopped)
			do_copy(&queue[i]);
		else
			queue[kept++] = queue[i];
	}
	queued = kept;
	page[PENDING] = queued;
}

static struct mark *find(struct mark *marks, uint64_t base, void *handle) {
	uint64_t i = (uint64_t)handle - base - 1;

	return (uint64_t)handle > base && i < MAX_HANDLES && marks[i].open ? &marks[i] : NULL;
}

static int create(struct mark *marks, uint64_t base, void **handle, uint64_t *count) {
	for (uint64_t i = 0; i < MAX_HANDLES; i++)
		if (!marks[i].open) {
			marks[i] = (struct mark){.open = 1};
			*handle = (void *)(base + i + 1);
			++*count;
			return 0;
		}
	return OUT_OF_MEMORY;
}

int cuInit(unsigned flags) {
	BEGIN(INIT, 0);
	return flags == 0 ? 0 : INVALID;
}

int cuDeviceGetCount(int *count) {
	BEGIN(COUNT, 0);
	*count = (int)page[DEVICES];
	return 0;
}

int cuDeviceGet(int *device, int ordinal) {
	BEGIN(GET, 0);
	*device = 40 + ordinal;
	return ordinal >= 0 && ordinal < (int)page[DEVICES] ? 0 : 101;
}

int cuDeviceGetName(char *name, int room, int device) {
	BEGIN(NAME, 0);
	snprintf(name, (size_t)room, "Fake GPU %d", device - 40);
	return 0;
}

int cuDeviceGetUuid_v2(unsigned char uuid[16], int device) {
	BEGIN(UUID, 0);
	memset(uuid, 0xa0 + device - 40, 16);
	return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
	(void)device;
	enum { CAPABILITY_MAJOR = 75, MPS_ENABLED = 133 };
	BEGIN(ATTRIBUTE, 0);
	if (attribute == MPS_ENABLED && page[MPS] == 0)
		return INVALID;
	*value = attribute == CAPABILITY_MAJOR ? 9 : attribute == MPS_ENABLED && page[MPS] == 2;
	return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
	(void)device;
	BEGIN(TOTAL, 0);
	*bytes = page[MEMORY_LIMIT];
	return 0;
}

int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
	(void)device;
	BEGIN(SET_FLAGS, 0);
	page[FLAGS] = flags;
	return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
	BEGIN(RETAIN, 0);
	page[CONTEXTS]++;
	*context = (void *)(CONTEXT_BASE + (uint64_t)device);
	return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
	(void)device;
	BEGIN(RELEASE, 0);
	if (page[CONTEXTS] == 0)
		return fault("a context is released that nobody has");
	page[CONTEXTS]--;
	return 0;
}

int cuCtxSetCurrent(void *context) {
	BEGIN(SET_CURRENT, 0);
	if (page[CONTEXTS] == 0)
		return NO_CONTEXT;
	current = (uint64_t)context;
	return 0;
}

int cuStreamCreate(void **stream, unsigned flags) {
	BEGIN(STREAM_CREATE, 1);
	if (flags != 1)
		return INVALID;
	return create(streams, STREAM_BASE, stream, &page[STREAMS]);
}

int cuStreamDestroy_v2(void *stream) {
	struct mark *s = find(streams, STREAM_BASE, stream);

	BEGIN(STREAM_DESTROY, 1);
	if (s == NULL)
		return fault("a stream is destroyed that is not there"), BAD_HANDLE;
	for (size_t i = 0; i < queued; i++)
		if (queue[i].stream == (uint64_t)stream)
			return fault("a stream is destroyed with work in it"), BAD_HANDLE;
	s->open = 0;
	page[STREAMS]--;
	return 0;
}

int cuStreamSynchronize(void *stream) {
	BEGIN(STREAM_SYNC, 1);
	if (find(streams, STREAM_BASE, stream) == NULL)
		return fault("a stream is waited for that is not there"), BAD_HANDLE;
	drain((uint64_t)stream, UINT64_MAX, 1);
	page[SYNCS]++;
	return 0;
}

int cuEventCreate(void **event, unsigned flags) {
	BEGIN(EVENT_CREATE, 1);
	return flags > 1 ? INVALID : create(events, EVENT_BASE, event, &page[EVENTS]);
}

int cuEventDestroy_v2(void *event) {
	struct mark *e = find(events, EVENT_BASE, event);

	BEGIN(EVENT_DESTROY, 1);
	if (e == NULL)
		return fault("an event is destroyed that is not there"), BAD_HANDLE;
	e->open = 0;
	page[EVENTS]--;
	return 0;
}

int cuEventRecord(void *event, void *stream) {
	struct mark *e = find(events, EVENT_BASE, event);

	BEGIN(EVENT_RECORD, 1);
	if (e == NULL || find(streams, STREAM_BASE, stream) == NULL)
		return fault("an event or stream that is not there"), BAD_HANDLE;
	page[RECORDS] += page[THREAD] == (uint64_t)syscall(SYS_gettid);
	e->stream = (uint64_t)stream, e->sequence = ++sequence, e->time = now;
	drain((uint64_t)stream, e->sequence, 0);
	return 0;
}

static int pending(struct mark *e) {
	for (size_t i = 0; i < queued; i++)
		if (queue[i].stream == e->stream && queue[i].sequence < e->sequence)
			return 1;
	return 0;
}

int cuEventQuery(void *event) {
	struct mark *e = find(events, EVENT_BASE, event);

	BEGIN(EVENT_QUERY, 1);
	if (e == NULL)
		return fault("an event is asked for that is not there"), BAD_HANDLE;
	if (page[UNREADY] > 0) {
		page[UNREADY]--;
		return NOT_READY;
	}
	if (e->stream != 0)
		drain(e->stream, e->sequence, 1);
	page[SYNCS]++;
	return 0;
}

int cuEventSynchronize(void *event) {
	struct mark *e = find(events, EVENT_BASE, event);

	BEGIN(EVENT_SYNC, 1);
	if (e == NULL)
		return fault("an event is waited for that is not there"), BAD_HANDLE;
	if (e->stream != 0)
		drain(e->stream, e->sequence, 1);
	page[SYNCS]++;
	return 0;
}

int cuEventElapsedTime(float *milliseconds, void *from, void *to) {
	struct mark *a = find(events, EVENT_BASE, from), *b = find(events, EVENT_BASE, to);

	BEGIN(ELAPSED, 1);
	if (a == NULL || b == NULL || a->stream == 0 || b->stream == 0)
		return BAD_HANDLE;
	if (pending(a) || pending(b))
		return NOT_READY;
	*milliseconds = ((float)b->time - (float)a->time) * 0.5f;
	return 0;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
	size_t rounded = (bytes + 255) & ~(size_t)255;
	char *memory;

	BEGIN(ALLOC, 1);
	if (bytes == 0)
		return INVALID;
	if (page[BYTES] + page[MEMORY_TAKEN] + rounded > page[MEMORY_LIMIT] || block_count == MAX_BLOCKS)
		return OUT_OF_MEMORY;
	memory = mmap(NULL, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return OUT_OF_MEMORY;
	memset(memory, 0xee, rounded); /* nobody may count on zeros */
	*address = page[IDENTITY] ? (uint64_t)memory : next_address;
	next_address += rounded + 4096;
	blocks[block_count++] = (struct block){*address, memory, rounded};
	page[ALLOCATIONS]++;
	page[BYTES] += rounded;
	if (page[BYTES] > page[PEAK])
		page[PEAK] = page[BYTES];
	return 0;
}

int cuMemFree_v2(uint64_t address) {
	BEGIN(FREE, 1);
	for (size_t i = 0; i < block_count; i++) {
		struct block b = blocks[i];

		if (b.address != address)
			continue;
		for (size_t k = 0; k < queued; k++)
			if ((queue[k].kind != COPY_OUT && queue[k].to - b.address < b.bytes) ||
			    (queue[k].kind != COPY_IN && queue[k].from - b.address < b.bytes))
				fault("memory is freed that a queued copy uses");
		munmap(b.memory, b.bytes);
		blocks[i] = blocks[--block_count];
		page[ALLOCATIONS]--;
		page[BYTES] -= b.bytes;
		return 0;
	}
	return fault("memory is freed that is not there");
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
	uint64_t used = page[BYTES] + page[MEMORY_TAKEN];

	BEGIN(INFO, 1);
	*total = page[MEMORY_LIMIT];
	*free_bytes = used < *total ? *total - used : 0;
	return 0;
}

static int enqueue(enum call kind, uint64_t to, uint64_t from, size_t bytes, void *stream) {
	if (find(streams, STREAM_BASE, stream) == NULL)
		return fault("a copy in a stream that is not there"), BAD_HANDLE;
	if (queued == MAX_COPIES)
		return OUT_OF_MEMORY;
	queue[queued++] = (struct copy){kind, to, from, (uint64_t)stream, bytes, sequence};
	page[PENDING] = queued;
	return 0;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
	BEGIN(COPY_IN, 1);
	page[COPIES_IN]++;
	return device_memory(to, bytes) == NULL ? INVALID : enqueue(COPY_IN, to, (uint64_t)from, bytes, stream);
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
	BEGIN(COPY_OUT, 1);
	page[COPIES_OUT]++;
	return device_memory(from, bytes) == NULL ? INVALID : enqueue(COPY_OUT, (uint64_t)to, from, bytes, stream);
}

/* Reports whether the process can write a byte: it is written as it is. */
static int writable(char *memory) {
	char byte = *memory;
	int ends[2], can = 0;

	if (pipe(ends) != 0)
		return 0;
	can = write(ends[1], &byte, 1) == 1 && read(ends[0], memory, 1) == 1;
	close(ends[0]);
	close(ends[1]);
	return can;
}

/* As many a driver it takes no memory that can only be read, whatever the flags say. */
int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags) {
	enum { READ_ONLY = 8 };
	BEGIN(PIN, 1);
	if (flags & READ_ONLY)
		return NOT_SUPPORTED;
	if (!writable(memory))
		return INVALID;
	for (size_t i = 0; i < MAX_HANDLES; i++)
		if (pins[i].bytes != 0 && (char *)memory < pins[i].memory + pins[i].bytes && pins[i].memory < (char *)memory + bytes)
			return PINNED_ALREADY;
	for (size_t i = 0; i < MAX_HANDLES; i++)
		if (pins[i].bytes == 0) {
			pins[i] = (struct pin){memory, bytes};
			page[PINS]++;
			return 0;
		}
	return OUT_OF_MEMORY;
}

int cuMemHostUnregister(void *memory) {
	BEGIN(UNPIN, 1);
	for (size_t i = 0; i < MAX_HANDLES; i++)
		if (pins[i].bytes != 0 && pins[i].memory == memory) {
			pins[i].bytes = 0;
			page[PINS]--;
			return 0;
		}
	return NOT_PINNED;
}
