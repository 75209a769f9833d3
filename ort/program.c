#include "program.h"

#include <stdlib.h>
#include <time.h>

struct overlapd_program *overlapd_program_new(ort_table api, size_t steps) {
	struct overlapd_program *p = calloc(1, sizeof *p);
	if (p == NULL)
		return NULL;
	p->api = api;
	p->step = calloc(steps, sizeof *p->step);
	if (p->step == NULL) {
		free(p);
		return NULL;
	}
	p->steps = steps;
	return p;
}

bool overlapd_program_set_step(struct overlapd_program *p, size_t i, OrtSession *session,
                               ort_strings input_names, size_t inputs,
                               ort_strings output_names, size_t outputs) {
	struct overlapd_step *s = &p->step[i];

	s->session = session;
	s->input_names = input_names;
	s->output_names = output_names;
	/* One more than needed: calloc of nothing may return NULL. */
	s->input = calloc(inputs + 1, sizeof *s->input);
	s->link = calloc(inputs + 1, sizeof *s->link);
	s->output = calloc(outputs + 1, sizeof *s->output);
	s->owned = calloc(outputs + 1, sizeof *s->owned);
	if (s->input == NULL || s->link == NULL || s->output == NULL || s->owned == NULL)
		return false;
	s->inputs = inputs;
	s->outputs = outputs;
	for (size_t o = 0; o < outputs; o++)
		s->owned[o] = 1;
	return true;
}

bool overlapd_program_drop_after(struct overlapd_program *p, size_t step, size_t from, size_t output) {
	struct overlapd_step *s = &p->step[step];
	struct overlapd_place *grown = realloc(s->drop, (s->drops + 1) * sizeof *grown);

	if (grown == NULL)
		return false;
	s->drop = grown;
	s->drop[s->drops++] = (struct overlapd_place){from, output};
	return true;
}

void overlapd_program_drop(struct overlapd_program *p, size_t step, size_t output) {
	struct overlapd_step *s = &p->step[step];

	if (!s->owned[output] || s->output[output] == NULL)
		return;
	ort_ReleaseValue(p->api, s->output[output]);
	s->output[output] = NULL;
}

void overlapd_program_free(struct overlapd_program *p) {
	for (size_t i = 0; i < p->steps; i++) {
		struct overlapd_step *s = &p->step[i];

		for (size_t o = 0; o < s->outputs; o++)
			overlapd_program_drop(p, i, o);
		free(s->input);
		free(s->link);
		free(s->output);
		free(s->owned);
		free(s->drop);
	}
	free(p->step);
	free(p);
}

OrtStatus *overlapd_refuse_empty(ort_table api, const OrtValue *const *values, size_t n) {
	enum { INVALID_ARGUMENT = 2 };

	for (size_t i = 0; i < n; i++) {
		int has = 1;
		OrtStatus *status = values[i] != NULL ? ort_HasValue(api, values[i], &has) : NULL;

		if (status != NULL)
			return status;
		if (!has)
			return ort_CreateStatus(api, INVALID_ARGUMENT, "an empty optional cannot be an input");
	}
	return NULL;
}

static OrtStatus *run_step(struct overlapd_program *p, const OrtRunOptions *options, size_t i) {
	struct overlapd_step *s = &p->step[i];
	OrtStatus *status;

	for (size_t k = 0; k < s->inputs; k++)
		if (s->link[k] != NULL)
			s->input[k] = *s->link[k];
	status = overlapd_refuse_empty(p->api, (const OrtValue *const *)s->input, s->inputs);
	if (status != NULL)
		return status;
	/* A value left by an earlier run would be taken for a buffer to fill. */
	for (size_t k = 0; k < s->outputs; k++)
		overlapd_program_drop(p, i, k);
	status = ort_Run(p->api, s->session, options, s->input_names,
	                 (const OrtValue *const *)s->input, s->inputs, s->output_names,
	                 s->outputs, s->output);
	if (status != NULL)
		return status;
	for (size_t k = 0; k < s->drops; k++)
		overlapd_program_drop(p, s->drop[k].step, s->drop[k].output);
	return NULL;
}

static int64_t monotonic_nanos(void) {
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

OrtStatus *overlapd_program_run(struct overlapd_program *p, const OrtRunOptions *options,
                                size_t start, size_t end, const uint32_t *stop, int64_t *nanos) {
	for (p->reached = start; p->reached < end; p->reached++) {
		if (stop != NULL && __atomic_load_n(stop, __ATOMIC_ACQUIRE) != 0)
			return NULL;

		int64_t begin = nanos != NULL ? monotonic_nanos() : 0;
		OrtStatus *status = run_step(p, options, p->reached);
		if (status != NULL)
			return status;
		if (nanos != NULL)
			nanos[p->reached] = monotonic_nanos() - begin;
	}
	return NULL;
}
