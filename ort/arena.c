#include "arena.h"

#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

/* What lies before each block: where malloc's block begins, and how large ours is. */
struct head {
	void *block;
	size_t size;
};

/* Of all arenas, of which there is one at a time. */
static __thread int64_t thread_in_use, thread_peak;

enum { ALIGN = 64 }; /* what the widest vector instructions want */

/* Fails as the runtime's own allocator does, which throws a C++ exception: most
 * kernels would write to NULL. Nobody has this much memory. */
static void *fail(struct overlapd_arena *arena) {
	return arena->runtime->Alloc(arena->runtime, PTRDIFF_MAX / 2);
}

static void *take(OrtAllocator *allocator, size_t size) {
	struct overlapd_arena *arena = (struct overlapd_arena *)allocator;

	if (size == 0)
		return NULL;
	if (size > PTRDIFF_MAX / 2)
		return fail(arena);
	int64_t limit = __atomic_load_n(&arena->limit, __ATOMIC_RELAXED);
	/* What is refused is never counted, or another thread would see it. */
	int64_t before = __atomic_load_n(&arena->in_use, __ATOMIC_RELAXED), in_use;
	do {
		in_use = before + (int64_t)size;
		if (limit > 0 && (in_use > limit || (intptr_t)sbrk(0) > __atomic_load_n(&arena->ceiling, __ATOMIC_RELAXED))) {
			__atomic_store_n(&arena->refused, (int64_t)size, __ATOMIC_RELAXED);
			__atomic_add_fetch(&arena->refusals, 1, __ATOMIC_RELAXED);
			return fail(arena);
		}
	} while (!__atomic_compare_exchange_n(&arena->in_use, &before, in_use, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	char *block = malloc(size + ALIGN);
	if (block == NULL) {
		__atomic_sub_fetch(&arena->in_use, (int64_t)size, __ATOMIC_RELAXED);
		return fail(arena);
	}
	thread_in_use += (int64_t)size;
	if (thread_in_use > thread_peak)
		thread_peak = thread_in_use;
	/* malloc aligns to 16 bytes, so there is always room for the head. */
	char *data = (char *)(((uintptr_t)block + ALIGN) & ~(uintptr_t)(ALIGN - 1));
	((struct head *)data)[-1] = (struct head){block, size};
	return data;
}

static void give(OrtAllocator *allocator, void *data) {
	struct overlapd_arena *arena = (struct overlapd_arena *)allocator;

	if (data == NULL)
		return;
	struct head *head = (struct head *)data - 1;
	__atomic_sub_fetch(&arena->in_use, (int64_t)head->size, __ATOMIC_RELAXED);
	thread_in_use -= (int64_t)head->size;
	free(head->block);
}

static const OrtMemoryInfo *info(const OrtAllocator *allocator) {
	return ((const struct overlapd_arena *)allocator)->info;
}

struct overlapd_arena *overlapd_arena_new(OrtAllocator *runtime, const OrtMemoryInfo *memory) {
	enum { VERSION = 18 }; /* the first version of the ABI with all four functions */
	struct overlapd_arena *arena = calloc(1, sizeof *arena);

	if (arena == NULL)
		return NULL;
	arena->allocator = (OrtAllocator){VERSION, take, give, info, take};
	arena->runtime = runtime;
	arena->info = memory;
	/* The heap keeps large blocks, too, until it is trimmed: fresh pages from the
	 * system would cost more than many operators take. */
	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, -1);
	return arena;
}

int64_t overlapd_arena_thread(void) { return thread_in_use; }

int64_t overlapd_arena_thread_peak(bool anew) { return anew ? thread_peak = thread_in_use : thread_peak; }

void overlapd_arena_limit(struct overlapd_arena *arena, int64_t limit) {
	const int64_t records = 64 << 20; /* and what is lost between blocks, half of them */
	int64_t room = limit - __atomic_load_n(&arena->in_use, __ATOMIC_RELAXED);

	room = room > 0 ? room : 0;
	__atomic_store_n(&arena->ceiling, (intptr_t)sbrk(0) + room + room / 2 + records, __ATOMIC_RELAXED);
	__atomic_store_n(&arena->limit, limit > 0 ? limit : 1, __ATOMIC_RELAXED);
}

/* One heap for all threads. A thread keeps the one that it has, so this comes before
 * there are others; and the end of a heap that is not the first is never trimmed. */
__attribute__((constructor)) static void one_heap(void) { mallopt(M_ARENA_MAX, 1); }

void overlapd_arena_trim(void) { malloc_trim(0); }
