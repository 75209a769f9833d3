/*
 * A library of custom operators for tests: Double and Crash of the domain test.ops, from a
 * tensor of floats to one of the same shape. Crash doubles as well, unless the first element
 * is negative: then it ends its process.
 *
 * CRASH_AT_LOAD, REFUSE, NAMELESS and PYTHON make libraries that cannot be used.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Functions of the runtime are slots of a table, which only ever grows. */
typedef void (*function)(void);
typedef const function *table;

enum {
	CREATE_STATUS = 0,
	CREATE_DOMAIN = 26,
	ADD_OPERATOR = 27,
	ADD_DOMAIN = 28,
	DATA = 51,
	DIMENSIONS_COUNT = 61,
	DIMENSIONS = 62,
	ELEMENTS = 64,
	TYPE_AND_SHAPE = 65,
	INPUT = 90,
	OUTPUT = 91,
	RELEASE_TYPE_AND_SHAPE = 99,
};

enum { API_VERSION = 16, FLOAT = 1, FAIL = 1, MAX_RANK = 8 };

static table api;

#define CALL2(slot, a, b) ((void *(*)(void *, void *))api[slot])((void *)(a), (void *)(b))
#define CALL3(slot, a, b, c) ((void *(*)(void *, void *, void *))api[slot])((void *)(a), (void *)(b), (void *)(c))

/* OrtCustomOp as of version 13. Later ones have added functions, none of which is there. */
struct op {
	uint32_t version;
	void *(*create)(const struct op *, table, const void *);
	const char *(*name)(const struct op *);
	const char *(*provider)(const struct op *);
	int (*input_type)(const struct op *, size_t);
	size_t (*input_count)(const struct op *);
	int (*output_type)(const struct op *, size_t);
	size_t (*output_count)(const struct op *);
	void (*compute)(void *, void *);
	void (*destroy)(void *);
	int (*input_kind)(const struct op *, size_t);
	int (*output_kind)(const struct op *, size_t);
	int (*input_memory)(const struct op *, size_t);
	void *later[32];
};

static void *create(const struct op *op, table t, const void *info) { return (void *)op; }
static const char *name_double(const struct op *op) { return "Double"; }
static const char *name_crash(const struct op *op) { return "Crash"; }
static const char *provider(const struct op *op) { return NULL; }
static int type(const struct op *op, size_t i) { return FLOAT; }
static size_t one(const struct op *op) { return 1; }
static int standard(const struct op *op, size_t i) { return 0; } /* required, on the host */
static void destroy(void *kernel) {}

static void compute(void *kernel, void *context) {
	const struct op *op = kernel;
	void *in = NULL, *out = NULL, *shape = NULL;
	float *x = NULL, *y = NULL;
	size_t rank = 0, n = 0;
	int64_t dims[MAX_RANK];
	CALL3(INPUT, context, 0, &in);
	CALL2(TYPE_AND_SHAPE, in, &shape);
	CALL2(DIMENSIONS_COUNT, shape, &rank);
	CALL2(ELEMENTS, shape, &n);
	if (rank > MAX_RANK)
		abort();
	CALL3(DIMENSIONS, shape, dims, rank);
	((void (*)(void *))api[RELEASE_TYPE_AND_SHAPE])(shape);
	((void *(*)(void *, size_t, const int64_t *, size_t, void **))api[OUTPUT])(context, 0, dims, rank, &out);
	CALL2(DATA, in, &x);
	CALL2(DATA, out, &y);
	if (op->name == name_crash && n > 0 && x[0] < 0)
		*(volatile int *)NULL = 1;
	for (size_t i = 0; i < n; i++)
		y[i] = 2 * x[i];
}

static const struct op ops[] = {
#define OP(name) {13, create, name, provider, type, one, type, one, compute, destroy, standard, standard, standard, {NULL}}
	OP(name_double),
	OP(name_crash),
};

#ifdef CRASH_AT_LOAD
__attribute__((constructor)) static void crash(void) { abort(); }
#endif

#ifdef PYTHON
extern int PyInstanceMethod_Type; /* of the interpreter, into which modules are loaded */
int *module_type(void) { return &PyInstanceMethod_Type; }
#endif

#ifndef NAMELESS
void *RegisterCustomOps(void *options, table base) {
	api = ((table(*)(uint32_t))base[0])(API_VERSION);
#ifdef REFUSE
	return ((void *(*)(int, const char *))api[CREATE_STATUS])(FAIL, "not today");
#endif
	void *domain = NULL;
	void *status = CALL2(CREATE_DOMAIN, "test.ops", &domain);
	for (size_t i = 0; i < sizeof ops / sizeof *ops && status == NULL; i++)
		status = CALL2(ADD_OPERATOR, domain, &ops[i]);
	if (status == NULL)
		status = CALL2(ADD_DOMAIN, options, domain);
	return status;
}
#endif
