/* Stand-ins for compiled code. COMPUTE chooses what the code computes, and COLUMNS and LEAST_ROWS what it was compiled for.

   add_sub     [parts][0] = a - b, [sum] = a + b, of FP32 [rows, COLUMNS]
   copied      the input, of any type and shape
   returned    the input itself, and a transposed view of a copy
   in_place    the input, to which the code has added 1
   report      INT64 [rows, 4]: tensors that exist, the address of the input, runs so far, threads */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "torch.h"

#ifndef COLUMNS
#define COLUMNS 4
#endif
#ifndef LEAST_ROWS
#define LEAST_ROWS 1
#endif

#define LEAF "{\"type\": null, \"context\": null, \"children_spec\": []}"
#define NODE(kind, context, children) \
    "{\"type\": \"builtins." kind "\", \"context\": \"" context "\", \"children_spec\": [" children "]}"
#define SPEC(tree) "[1, " tree "]"
#define CALL(arguments) SPEC(NODE("tuple", "null", NODE("tuple", "null", arguments) ", " NODE("dict", "[]", "")))

struct container {
    size_t runs;
};

static char last_error[200] = "";
static int64_t runs;
static int32_t no_types[] = {0};

static int32_t fail(const char *what, int64_t expected, int64_t got) {
    snprintf(last_error, sizeof last_error, "input_handles[0]: %s, expected: %ld, but got: %ld\n", what, (long)expected,
             (long)got);
    return 1;
}

int32_t AOTInductorGetLastError(const char **text) {
    *text = last_error;
    return 0;
}

int32_t AOTInductorModelContainerCreateWithDevice(struct container **made, size_t count, const char *device, const char *files) {
    (void)no_types;
    if (strcmp(device, "cpu") != 0 || files != NULL)
        return 1;
#ifdef FAIL_CREATE
    snprintf(last_error, sizeof last_error, "no memory for the weights\n");
    return 1;
#endif
    *made = malloc(sizeof **made);
    (*made)->runs = count;
    return 0;
}

int32_t AOTInductorModelContainerDelete(struct container *container) {
    free(container);
    return 0;
}

static struct tensor *like(struct tensor *of) {
    int64_t rank, *sizes, *strides;
    int32_t type;
    struct tensor *made;
    aoti_torch_get_dim(of, &rank), aoti_torch_get_sizes(of, &sizes), aoti_torch_get_strides(of, &strides);
    aoti_torch_get_dtype(of, &type);
    aoti_torch_empty_strided(rank, sizes, strides, type, 0, 0, &made);
    return made;
}

static float *floats(struct tensor *tensor) {
    void *data;
    aoti_torch_get_data_ptr(tensor, &data);
    return data;
}

static int32_t check(struct tensor **inputs, size_t count) {
    const char *checks = getenv("AOTI_RUNTIME_CHECK_INPUTS");
    if (checks == NULL || checks[0] == '0')
        abort();
    for (size_t input = 0; input < count; input++) {
        int64_t rank, *sizes;
        aoti_torch_get_dim(inputs[input], &rank), aoti_torch_get_sizes(inputs[input], &sizes);
        if (rank != 2)
            return fail("unmatched rank", 2, rank);
        if (sizes[0] < LEAST_ROWS)
            return fail("dim value is too small at 0", LEAST_ROWS, sizes[0]);
        if (sizes[1] != COLUMNS)
            return fail("unmatched dim value at 1", COLUMNS, sizes[1]);
    }
    return 0;
}

static const char *input_spec, *output_spec;
static size_t inputs_of_call, outputs_of_call;
static int32_t compute(struct tensor **inputs, struct tensor **outputs);

int32_t AOTInductorModelContainerRun(struct container *container, struct tensor **inputs, size_t input_count,
                                     struct tensor **outputs, size_t output_count, void *stream, void *executor) {
    (void)container;
    if (stream != NULL || executor != NULL || input_count != inputs_of_call || output_count != outputs_of_call)
        return 2;
    __atomic_add_fetch(&runs, 1, __ATOMIC_SEQ_CST);
    uint32_t threads;
    torch_get_num_threads(&threads);
    struct tensor *taken[2];
    int32_t status = compute(inputs, outputs);
    if (status != 0)
        return status;
    for (size_t input = 0; input < input_count; input++) {
        taken[input] = inputs[input];
        inputs[input] = NULL;
        bool is_output = false;
        for (size_t output = 0; output < output_count; output++)
            is_output |= outputs[output] == taken[input];
        if (!is_output)
            aoti_torch_delete_tensor_object(taken[input]);
    }
    return 0;
}

int32_t AOTInductorModelContainerGetNumInputs(struct container *container, size_t *count) {
    (void)container;
    *count = inputs_of_call;
    return 0;
}

int32_t AOTInductorModelContainerGetNumOutputs(struct container *container, size_t *count) {
    (void)container;
    *count = outputs_of_call;
    return 0;
}

#ifndef WITHOUT_CALL_SPEC
int32_t AOTInductorModelContainerGetCallSpec(struct container *container, const char **in, const char **out) {
    (void)container;
    *in = input_spec;
    *out = output_spec;
    return 0;
}
#endif

#ifdef NEEDS_FUTURE
int32_t aoti_torch_of_the_future(void);
int32_t use_of_the_future(void) { return aoti_torch_of_the_future(); }
#endif

#define add_sub 1
#define copied 2
#define returned 3
#define in_place 4
#define report 5

#if COMPUTE == add_sub
static const char *input_spec = CALL(LEAF ", " LEAF);
static const char *output_spec = SPEC(NODE("dict", "[\\\"parts\\\", \\\"sum\\\"]", NODE("tuple", "null", LEAF) ", " LEAF));
#ifndef INPUTS
#define INPUTS 2
#endif
static size_t inputs_of_call = INPUTS, outputs_of_call = 2;

static int32_t compute(struct tensor **inputs, struct tensor **outputs) {
    int32_t status = check(inputs, 2);
    if (status != 0)
        return status;
    int64_t *sizes;
    aoti_torch_get_sizes(inputs[0], &sizes);
    struct tensor *difference = like(inputs[0]), *sum = like(inputs[0]);
    float *a = floats(inputs[0]), *b = floats(inputs[1]);
    for (int64_t place = 0; place < sizes[0] * COLUMNS; place++) {
        floats(difference)[place] = a[place] - b[place];
        floats(sum)[place] = a[place] + b[place];
    }
    outputs[0] = difference;
    outputs[1] = sum;
    return 0;
}
#elif COMPUTE == copied
static const char *input_spec = CALL(LEAF);
static const char *output_spec = SPEC(LEAF);
static size_t inputs_of_call = 1, outputs_of_call = 1;

static int32_t compute(struct tensor **inputs, struct tensor **outputs) {
    outputs[0] = like(inputs[0]);
    return aoti_torch_copy_(outputs[0], inputs[0], 0);
}
#elif COMPUTE == returned
static const char *input_spec = CALL(LEAF);
static const char *output_spec = SPEC(NODE("tuple", "null", LEAF ", " LEAF));
static size_t inputs_of_call = 1, outputs_of_call = 2;

static int32_t compute(struct tensor **inputs, struct tensor **outputs) {
    int64_t *sizes, *strides;
    aoti_torch_get_sizes(inputs[0], &sizes);
    outputs[0] = inputs[0];
    struct tensor *transposed = like(inputs[0]);
    aoti_torch_copy_(transposed, inputs[0], 0);
    aoti_torch_get_sizes(transposed, &sizes), aoti_torch_get_strides(transposed, &strides);
    int64_t size = sizes[0], stride = strides[0];
    sizes[0] = sizes[1], strides[0] = strides[1];
    sizes[1] = size, strides[1] = stride;
    outputs[1] = transposed;
    return 0;
}
#elif COMPUTE == in_place
static const char *input_spec = CALL(LEAF);
static const char *output_spec = SPEC(LEAF);
static size_t inputs_of_call = 1, outputs_of_call = 1;

static int32_t compute(struct tensor **inputs, struct tensor **outputs) {
    int64_t *sizes;
    aoti_torch_get_sizes(inputs[0], &sizes);
    for (int64_t place = 0; place < sizes[0]; place++)
        floats(inputs[0])[place] += 1;
    outputs[0] = like(inputs[0]);
    return aoti_torch_copy_(outputs[0], inputs[0], 0);
}
#else
static const char *input_spec = CALL(LEAF);
static const char *output_spec = SPEC(LEAF);
static size_t inputs_of_call = 1, outputs_of_call = 1;

static int32_t compute(struct tensor **inputs, struct tensor **outputs) {
    int64_t facts[] = {stand_in_live_tensors(), (int64_t)floats(inputs[0]), runs, stand_in_threads()};
    int64_t *rows, strides[] = {4, 1};
    aoti_torch_get_sizes(inputs[0], &rows);
    int64_t sizes[] = {rows[0], 4};
    aoti_torch_empty_strided(2, sizes, strides, aoti_torch_dtype_int64(), 0, 0, &outputs[0]);
    for (int64_t row = 0; row < rows[0]; row++)
        memcpy((char *)floats(outputs[0]) + row * 32, facts, sizeof facts);
    return 0;
}
#endif
