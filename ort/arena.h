/* The arena: the memory that the runtime takes on the CPU, counted and bounded. */
#ifndef OVERLAPD_ORT_ARENA_H
#define OVERLAPD_ORT_ARENA_H

#include "abi.h"

/* Go reads and writes the numbers, atomically. All are bytes. */
struct overlapd_arena {
	OrtAllocator allocator; /* first, since the runtime knows only its address */
	OrtAllocator *runtime;  /* the runtime's own */
	const OrtMemoryInfo *info;
	int64_t in_use;
	int64_t limit;    /* on in_use, 0 for none */
	int64_t ceiling;  /* on the end of the heap while there is a limit */
	int64_t refusals; /* how often somebody asked for what would have exceeded it */
	int64_t refused;  /* and for how much the last time */
};

/* Returns an arena whose memory is said to be info's, NULL if there is no memory.
 * It is freed with free. */
struct overlapd_arena *overlapd_arena_new(OrtAllocator *runtime, const OrtMemoryInfo *info);

/* Limits what is in use, and with it the heap: for each value the runtime keeps records
 * there, which nobody counts, and a loop makes millions. */
void overlapd_arena_limit(struct overlapd_arena *arena, int64_t limit);

/* What the calling thread has taken more than it has given back, and the most that this
 * was since it was started anew. */
int64_t overlapd_arena_thread(void);
int64_t overlapd_arena_thread_peak(bool anew);

/* Gives what is free back to the system. */
void overlapd_arena_trim(void);

#endif
