/* A program: runs of sessions one after the other, without leaving C. */
#ifndef OVERLAPD_ORT_PROGRAM_H
#define OVERLAPD_ORT_PROGRAM_H

#include "abi.h"

/* The runtime crashes when an empty optional goes into a session. Returns the
 * error to give instead, or NULL if there is none among the values. A value that
 * is missing is left to the runtime, which says so. */
OrtStatus *overlapd_refuse_empty(ort_table api, const OrtValue *const *values, size_t n);

/* An output of a step, named by its place. */
struct overlapd_place {
	size_t step, output;
};

struct overlapd_step {
	OrtSession *session;
	ort_strings input_names, output_names; /* the session's */
	size_t inputs, outputs, drops;
	OrtValue **input;
	OrtValue ***link;            /* where input[i] comes from, or NULL */
	OrtValue **output;
	uint8_t *owned;              /* 1: ORT allocates output[i] at each run */
	struct overlapd_place *drop; /* owned outputs that die with this step */
	OrtIoBinding *binding;       /* of a bound step, else NULL */
	const OrtMemoryInfo **place; /* of a bound step: where output[i] shall be */
};

struct overlapd_program {
	ort_table api;
	OrtAllocator *allocator;      /* the runtime's own */
	const OrtRunOptions *options; /* of all runs, or NULL */
	OrtRunOptions *graph;         /* of runs as CUDA graphs, or NULL; the program's own */
	bool graphs;                  /* bound steps run with these */
	bool synchronous;             /* bound steps run without options, and wait for the GPU */
	size_t steps, reached;
	struct overlapd_step *step;
};

struct overlapd_program *overlapd_program_new(ort_table api, size_t steps);
bool overlapd_program_set_step(struct overlapd_program *p, size_t i, OrtSession *session,
                               ort_strings input_names, size_t inputs,
                               ort_strings output_names, size_t outputs);
/* Makes a step one that runs through a binding: inputs are taken and outputs
 * left where the session has them, which need not be the host's memory. */
OrtStatus *overlapd_program_bind(struct overlapd_program *p, size_t step);
bool overlapd_program_drop_after(struct overlapd_program *p, size_t step, size_t from, size_t output);
void overlapd_program_drop(struct overlapd_program *p, size_t step, size_t output);
void overlapd_program_free(struct overlapd_program *p);

/* Runs steps [start, end). stop and nanos may be NULL. p->reached is the first
 * step that did not run. */
OrtStatus *overlapd_program_run(struct overlapd_program *p, size_t start, size_t end,
                                const uint32_t *stop, int64_t *nanos);

#endif
