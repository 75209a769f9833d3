#include "program.h"

#include <errno.h>
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

OrtStatus *overlapd_program_bind(struct overlapd_program *p, size_t i) {
	enum { FAIL = 1 };
	struct overlapd_step *s = &p->step[i];

	s->place = calloc(s->outputs + 1, sizeof *s->place);
	if (s->place == NULL)
		return ort_CreateStatus(p->api, FAIL, "out of memory");
	if (s->outputs > 0) {
		OrtStatus *status = ort_SessionGetMemoryInfoForOutputs(p->api, s->session, s->place, s->outputs);

		if (status != NULL)
			return status;
	}
	return ort_CreateIoBinding(p->api, s->session, &s->binding);
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
		free(s->place);
		if (s->binding != NULL)
			ort_ReleaseIoBinding(p->api, s->binding);
	}
	if (p->graph != NULL)
		ort_ReleaseRunOptions(p->api, p->graph);
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

/* Binds all outputs, in their order: ours to their values, the runtime's to the
 * place where the session makes them. */
static OrtStatus *bind_outputs(struct overlapd_program *p, struct overlapd_step *s) {
	for (size_t k = 0; k < s->outputs; k++) {
		OrtStatus *status = s->owned[k]
		                        ? ort_BindOutputToDevice(p->api, s->binding, s->output_names[k], s->place[k])
		                        : ort_BindOutput(p->api, s->binding, s->output_names[k], s->output[k]);

		if (status != NULL)
			return status;
	}
	return NULL;
}

/* Lets go of all values: the binding must not keep alive what the program drops.
 * Binding an output again forgets the value that a run left there. */
static void unbind(struct overlapd_program *p, struct overlapd_step *s) {
	ort_ClearBoundInputs(p->api, s->binding);
	for (size_t k = 0; k < s->outputs; k++) {
		OrtStatus *status = ort_BindOutputToDevice(p->api, s->binding, s->output_names[k], s->place[k]);

		if (status != NULL)
			ort_ReleaseStatus(p->api, status);
	}
}

/* Takes the outputs that the runtime made out of the binding. */
static OrtStatus *take_outputs(struct overlapd_program *p, struct overlapd_step *s) {
	OrtValue **values = NULL;
	size_t n = 0;
	OrtStatus *status = ort_GetBoundOutputValues(p->api, s->binding, p->allocator, &values, &n);

	if (status != NULL)
		return status;
	for (size_t k = 0; k < n; k++) {
		if (k < s->outputs && s->owned[k])
			s->output[k] = values[k];
		else
			ort_ReleaseValue(p->api, values[k]);
	}
	return values != NULL ? ort_AllocatorFree(p->api, p->allocator, values) : NULL;
}

static OrtStatus *run_bound(struct overlapd_program *p, struct overlapd_step *s) {
	const OrtRunOptions *options = p->synchronous ? NULL : p->graphs ? p->graph : p->options;
	OrtStatus *status = bind_outputs(p, s);

	/* A missing input is left out: the runtime says which. */
	for (size_t k = 0; k < s->inputs && status == NULL; k++)
		if (s->input[k] != NULL)
			status = ort_BindInput(p->api, s->binding, s->input_names[k], s->input[k]);
	if (status == NULL)
		status = ort_RunWithBinding(p->api, s->session, options, s->binding);
	if (status == NULL)
		status = take_outputs(p, s);
	unbind(p, s);
	return status;
}

static OrtStatus *run_step(struct overlapd_program *p, size_t i) {
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
	if (s->binding != NULL)
		status = run_bound(p, s);
	else
		status = ort_Run(p->api, s->session, p->options, s->input_names,
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

OrtStatus *overlapd_program_run(struct overlapd_program *p, size_t start, size_t end,
                                const uint32_t *stop, int64_t *nanos) {
	for (p->reached = start; p->reached < end; p->reached++) {
		if (stop != NULL && __atomic_load_n(stop, __ATOMIC_ACQUIRE) != 0)
			break;

		int64_t begin = nanos != NULL ? monotonic_nanos() : 0;
		OrtStatus *status = run_step(p, p->reached);
		if (status != NULL)
			return status;
		if (nanos != NULL)
			nanos[p->reached] = monotonic_nanos() - begin;
	}
	return NULL;
}
