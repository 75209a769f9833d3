/*
 * The part of ONNX Runtime's C ABI that overlapd calls.
 *
 * The runtime hands out a table of function pointers that only ever grows, so
 * a function is its slot number and its signature. Nothing here needs the
 * runtime's own header or the library to build.
 */
#ifndef OVERLAPD_ORT_ABI_H
#define OVERLAPD_ORT_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct OrtAllocator OrtAllocator;
typedef struct OrtArenaCfg OrtArenaCfg;
typedef struct OrtCUDAProviderOptionsV2 OrtCUDAProviderOptionsV2;
typedef struct OrtEnv OrtEnv;
typedef struct OrtIoBinding OrtIoBinding;
typedef struct OrtMapTypeInfo OrtMapTypeInfo;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtOptionalTypeInfo OrtOptionalTypeInfo;
typedef struct OrtPrepackedWeightsContainer OrtPrepackedWeightsContainer;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtSequenceTypeInfo OrtSequenceTypeInfo;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtStatus OrtStatus;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtThreadingOptions OrtThreadingOptions;
typedef struct OrtTypeInfo OrtTypeInfo;
typedef struct OrtValue OrtValue;

/* An allocator, the runtime's or ours. Version says how many functions it has. */
struct OrtAllocator {
	uint32_t version;
	void *(*Alloc)(OrtAllocator *, size_t);
	void (*Free)(OrtAllocator *, void *);
	const OrtMemoryInfo *(*Info)(const OrtAllocator *);
	void *(*Reserve)(OrtAllocator *, size_t);
};

typedef void (*ort_function)(void);
typedef const ort_function *ort_table;

/* The table that OrtGetApiBase returns: slot 0 gives the API, 1 the version. */
static inline ort_table ort_GetApi(ort_table base, uint32_t version) {
	return ((ort_table(*)(uint32_t))base[0])(version);
}
static inline const char *ort_GetVersionString(ort_table base) {
	return ((const char *(*)(void))base[1])();
}

/* ORT_n defines ort_NAME: the function in that slot, of n arguments, which
 * returns a status that is NULL on success and otherwise the caller's. */
#define ORT_1(slot, name, A)                                                   \
	static inline OrtStatus *ort_##name(ort_table t, A a) {                    \
		return ((OrtStatus * (*)(A)) t[slot])(a);                              \
	}
#define ORT_2(slot, name, A, B)                                                \
	static inline OrtStatus *ort_##name(ort_table t, A a, B b) {               \
		return ((OrtStatus * (*)(A, B)) t[slot])(a, b);                        \
	}
#define ORT_3(slot, name, A, B, C)                                             \
	static inline OrtStatus *ort_##name(ort_table t, A a, B b, C c) {          \
		return ((OrtStatus * (*)(A, B, C)) t[slot])(a, b, c);                  \
	}
#define ORT_4(slot, name, A, B, C, D)                                          \
	static inline OrtStatus *ort_##name(ort_table t, A a, B b, C c, D d) {     \
		return ((OrtStatus * (*)(A, B, C, D)) t[slot])(a, b, c, d);            \
	}
#define ORT_5(slot, name, A, B, C, D, E)                                       \
	static inline OrtStatus *ort_##name(ort_table t, A a, B b, C c, D d,       \
	                                    E e) {                                 \
		return ((OrtStatus * (*)(A, B, C, D, E)) t[slot])(a, b, c, d, e);      \
	}
#define ORT_6(slot, name, A, B, C, D, E, F)                                    \
	static inline OrtStatus *ort_##name(ort_table t, A a, B b, C c, D d, E e,  \
	                                    F f) {                                 \
		return ((OrtStatus * (*)(A, B, C, D, E, F)) t[slot])(a, b, c, d, e,    \
		                                                     f);               \
	}
#define ORT_7(slot, name, A, B, C, D, E, F, G)                                 \
	static inline OrtStatus *ort_##name(ort_table t, A a, B b, C c, D d, E e,  \
	                                    F f, G g) {                            \
		return ((OrtStatus * (*)(A, B, C, D, E, F, G)) t[slot])(a, b, c, d, e, \
		                                                        f, g);         \
	}
#define ORT_8(slot, name, A, B, C, D, E, F, G, H)                              \
	static inline OrtStatus *ort_##name(ort_table t, A a, B b, C c, D d, E e,  \
	                                    F f, G g, H h) {                       \
		return ((OrtStatus * (*)(A, B, C, D, E, F, G, H)) t[slot])(            \
		    a, b, c, d, e, f, g, h);                                           \
	}
#define ORT_RELEASE(slot, name)                                                \
	static inline void ort_Release##name(ort_table t, Ort##name *a) {          \
		((void (*)(Ort##name *))t[slot])(a);                                   \
	}

typedef const char *const *ort_strings;

/* Status. */
static inline OrtStatus *ort_CreateStatus(ort_table t, int code, const char *message) {
	return ((OrtStatus * (*)(int, const char *)) t[0])(code, message);
}
static inline int ort_GetErrorCode(ort_table t, const OrtStatus *s) {
	return ((int (*)(const OrtStatus *))t[1])(s);
}
static inline const char *ort_GetErrorMessage(ort_table t, const OrtStatus *s) {
	return ((const char *(*)(const OrtStatus *))t[2])(s);
}
ORT_RELEASE(93, Status)

/* Environment: one pool of threads and one arena for all sessions. */
ORT_4(119, CreateEnvWithGlobalThreadPools, int, const char *, const OrtThreadingOptions *, OrtEnv **)
ORT_1(6, DisableTelemetryEvents, const OrtEnv *)
ORT_RELEASE(92, Env)
ORT_1(121, CreateThreadingOptions, OrtThreadingOptions **)
ORT_2(147, SetGlobalIntraOpNumThreads, OrtThreadingOptions *, int)
ORT_2(148, SetGlobalInterOpNumThreads, OrtThreadingOptions *, int)
ORT_2(149, SetGlobalSpinControl, OrtThreadingOptions *, int)
ORT_RELEASE(122, ThreadingOptions)
ORT_3(69, CreateCpuMemoryInfo, int, int, OrtMemoryInfo **)
ORT_RELEASE(94, MemoryInfo)
ORT_4(164, CreateArenaCfgV2, ort_strings, const size_t *, size_t, OrtArenaCfg **)
ORT_RELEASE(157, ArenaCfg)
ORT_2(176, RegisterAllocator, OrtEnv *, OrtAllocator *)
ORT_1(78, GetAllocatorWithDefaultOptions, OrtAllocator **)
ORT_2(76, AllocatorFree, OrtAllocator *, void *)

/* Where memory is. */
ORT_5(68, CreateMemoryInfo, const char *, int, int, int, OrtMemoryInfo **)
static inline void ort_MemoryInfoGetDeviceType(ort_table t, const OrtMemoryInfo *info, int *type) {
	((void (*)(const OrtMemoryInfo *, int *))t[225])(info, type);
}
/* 0 for a device's own memory, another number for what the host can use too. */
static inline int ort_MemoryInfoGetDeviceMemType(ort_table t, const OrtMemoryInfo *info) {
	return ((int (*)(const OrtMemoryInfo *))t[321])(info);
}

/* Execution providers. */
ORT_2(125, GetAvailableProviders, char ***, int *)
ORT_2(126, ReleaseAvailableProviders, char **, int)
ORT_2(204, SessionOptionsAppendExecutionProvider_CUDA_V2, OrtSessionOptions *, const OrtCUDAProviderOptionsV2 *)
ORT_1(205, CreateCUDAProviderOptions, OrtCUDAProviderOptionsV2 **)
ORT_4(206, UpdateCUDAProviderOptions, OrtCUDAProviderOptionsV2 *, ort_strings, ort_strings, size_t)
ORT_3(263, UpdateCUDAProviderOptionsWithValue, OrtCUDAProviderOptionsV2 *, const char *, void *)
static inline void ort_ReleaseCUDAProviderOptions(ort_table t, OrtCUDAProviderOptionsV2 *a) {
	((void (*)(OrtCUDAProviderOptionsV2 *))t[208])(a);
}
ORT_7(259, CreateAndRegisterAllocatorV2, OrtEnv *, const char *, const OrtMemoryInfo *, const OrtArenaCfg *, ort_strings, ort_strings, size_t)

/* Session. */
ORT_1(10, CreateSessionOptions, OrtSessionOptions **)
ORT_2(11, SetOptimizedModelFilePath, OrtSessionOptions *, const char *)
ORT_1(17, DisableMemPattern, OrtSessionOptions *)
ORT_2(20, SetSessionLogId, OrtSessionOptions *, const char *)
ORT_2(23, SetSessionGraphOptimizationLevel, OrtSessionOptions *, int)
ORT_1(120, DisablePerSessionThreads, OrtSessionOptions *)
ORT_2(24, SetIntraOpNumThreads, OrtSessionOptions *, int)
ORT_3(150, AddInitializer, OrtSessionOptions *, const char *, const OrtValue *)
ORT_3(130, AddSessionConfigEntry, OrtSessionOptions *, const char *, const char *)
ORT_RELEASE(100, SessionOptions)
ORT_4(7, CreateSession, const OrtEnv *, const char *, const OrtSessionOptions *, OrtSession **)
ORT_5(8, CreateSessionFromArray, const OrtEnv *, const void *, size_t, const OrtSessionOptions *, OrtSession **)
ORT_1(166, CreatePrepackedWeightsContainer, OrtPrepackedWeightsContainer **)
ORT_RELEASE(167, PrepackedWeightsContainer)
ORT_6(169, CreateSessionFromArrayWithPrepackedWeightsContainer, const OrtEnv *, const void *, size_t, const OrtSessionOptions *, OrtPrepackedWeightsContainer *, OrtSession **)
ORT_RELEASE(95, Session)
ORT_2(30, SessionGetInputCount, const OrtSession *, size_t *)
ORT_2(31, SessionGetOutputCount, const OrtSession *, size_t *)
ORT_3(33, SessionGetInputTypeInfo, const OrtSession *, size_t, OrtTypeInfo **)
ORT_3(34, SessionGetOutputTypeInfo, const OrtSession *, size_t, OrtTypeInfo **)
ORT_4(36, SessionGetInputName, const OrtSession *, size_t, OrtAllocator *, char **)
ORT_4(37, SessionGetOutputName, const OrtSession *, size_t, OrtAllocator *, char **)

ORT_3(380, SessionGetMemoryInfoForInputs, const OrtSession *, const OrtMemoryInfo **, size_t)
ORT_3(381, SessionGetMemoryInfoForOutputs, const OrtSession *, const OrtMemoryInfo **, size_t)

/* Binding of a session's inputs and outputs to values and places. */
ORT_2(134, CreateIoBinding, OrtSession *, OrtIoBinding **)
ORT_3(136, BindInput, OrtIoBinding *, const char *, const OrtValue *)
ORT_3(137, BindOutput, OrtIoBinding *, const char *, const OrtValue *)
ORT_3(138, BindOutputToDevice, OrtIoBinding *, const char *, const OrtMemoryInfo *)
ORT_4(140, GetBoundOutputValues, const OrtIoBinding *, OrtAllocator *, OrtValue ***, size_t *)
static inline void ort_ClearBoundInputs(ort_table t, OrtIoBinding *b) {
	((void (*)(OrtIoBinding *))t[141])(b);
}
ORT_3(133, RunWithBinding, OrtSession *, const OrtRunOptions *, const OrtIoBinding *)
ORT_RELEASE(135, IoBinding)

/* Run. */
ORT_8(9, Run, OrtSession *, const OrtRunOptions *, ort_strings, const OrtValue *const *, size_t, ort_strings, size_t, OrtValue **)
ORT_1(39, CreateRunOptions, OrtRunOptions **)
ORT_3(165, AddRunConfigEntry, OrtRunOptions *, const char *, const char *)
ORT_RELEASE(97, RunOptions)

/* Value. */
ORT_5(48, CreateTensorAsOrtValue, OrtAllocator *, const int64_t *, size_t, int, OrtValue **)
ORT_7(49, CreateTensorWithDataAsOrtValue, const OrtMemoryInfo *, void *, size_t, const int64_t *, size_t, int, OrtValue **)
ORT_2(51, GetTensorMutableData, OrtValue *, void **)
ORT_2(318, GetTensorSizeInBytes, const OrtValue *, size_t *)
ORT_4(414, GetTensorElementTypeAndShapeDataReference, const OrtValue *, int *, const int64_t **, size_t *)
ORT_4(252, GetResizedStringTensorElementBuffer, OrtValue *, size_t, size_t, char **)
ORT_2(53, GetStringTensorDataLength, const OrtValue *, size_t *)
ORT_5(54, GetStringTensorContent, const OrtValue *, void *, size_t, size_t *, size_t)
ORT_2(67, GetValueType, const OrtValue *, int *)
ORT_2(192, HasValue, const OrtValue *, int *)
ORT_4(80, GetValue, const OrtValue *, int, OrtAllocator *, OrtValue **)
ORT_2(81, GetValueCount, const OrtValue *, size_t *)
ORT_4(82, CreateValue, const OrtValue *const *, size_t, int, OrtValue **)
ORT_RELEASE(96, Value)

/* Type of a session's input or output. */
ORT_2(55, CastTypeInfoToTensorInfo, const OrtTypeInfo *, const OrtTensorTypeAndShapeInfo **)
ORT_2(56, GetOnnxTypeFromTypeInfo, const OrtTypeInfo *, int *)
ORT_2(60, GetTensorElementType, const OrtTensorTypeAndShapeInfo *, int *)
ORT_2(61, GetDimensionsCount, const OrtTensorTypeAndShapeInfo *, size_t *)
ORT_3(62, GetDimensions, const OrtTensorTypeAndShapeInfo *, int64_t *, size_t)
ORT_3(63, GetSymbolicDimensions, const OrtTensorTypeAndShapeInfo *, const char **, size_t)
ORT_2(103, CastTypeInfoToMapTypeInfo, const OrtTypeInfo *, const OrtMapTypeInfo **)
ORT_2(104, CastTypeInfoToSequenceTypeInfo, const OrtTypeInfo *, const OrtSequenceTypeInfo **)
ORT_2(250, CastTypeInfoToOptionalTypeInfo, const OrtTypeInfo *, const OrtOptionalTypeInfo **)
ORT_2(105, GetMapKeyType, const OrtMapTypeInfo *, int *)
ORT_2(106, GetMapValueType, const OrtMapTypeInfo *, OrtTypeInfo **)
ORT_2(107, GetSequenceElementType, const OrtSequenceTypeInfo *, OrtTypeInfo **)
ORT_2(251, GetOptionalContainedTypeInfo, const OrtOptionalTypeInfo *, OrtTypeInfo **)
ORT_RELEASE(98, TypeInfo)

#endif
