/* A stand-in for PyTorch's library: tensors in memory of the heap, and how many of them a thread has made and not freed. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "torch.h"

struct tensor {
    int64_t rank, sizes[8], strides[8];
    int32_t type;
    bool owns;
    char *data;
};

static __thread int64_t live;
static __thread uint32_t threads;

int64_t stand_in_live_tensors(void) { return live; }

int64_t stand_in_threads(void) { return threads; }

void omp_set_num_threads(int count) { threads = (uint32_t)count; }

/* As PyTorch: the first computation of a thread sets the number, whatever it was. */
int32_t torch_get_num_threads(uint32_t *count) {
    static __thread bool is_known;
    if (!is_known)
        threads = 99;
    is_known = true;
    *count = threads;
    return 0;
}

const char *torch_exception_get_what_without_backtrace(void) { return "the stand-in refuses\n"; }

int32_t aoti_torch_device_type_cpu(void) { return 0; }

#define TYPES(X) \
    X(uint8, 0, 1) X(int8, 1, 1) X(int16, 2, 2) X(int32, 3, 4) X(int64, 4, 8) X(float16, 5, 2) X(float32, 6, 4) \
    X(float64, 7, 8) X(bool, 11, 1) X(bfloat16, 15, 2) X(uint16, 27, 2) X(uint32, 28, 4) X(uint64, 29, 8)

#define NUMBER(name, number, size) \
    int32_t aoti_torch_dtype_##name(void) { return number; }
TYPES(NUMBER)

static int64_t element_size(int32_t type) {
    switch (type) {
#define SIZE(name, number, size) \
    case number: return size;
        TYPES(SIZE)
    }
    return 0;
}

static int32_t new_tensor(char *data, bool owns, int64_t rank, const int64_t *sizes, const int64_t *strides, int32_t type,
                          struct tensor **made) {
    struct tensor *tensor = calloc(1, sizeof *tensor);
    tensor->rank = rank;
    memcpy(tensor->sizes, sizes, (size_t)rank * sizeof *sizes);
    memcpy(tensor->strides, strides, (size_t)rank * sizeof *strides);
    tensor->type = type;
    tensor->owns = owns;
    tensor->data = data;
    live++;
    *made = tensor;
    return 0;
}

int32_t aoti_torch_create_tensor_from_blob(void *data, int64_t rank, const int64_t *sizes, const int64_t *strides, int64_t offset,
                                           int32_t type, int32_t device, int32_t index, struct tensor **made) {
    (void)device, (void)index;
    return new_tensor((char *)data + offset * element_size(type), false, rank, sizes, strides, type, made);
}

int32_t aoti_torch_empty_strided(int64_t rank, const int64_t *sizes, const int64_t *strides, int32_t type, int32_t device,
                                 int32_t index, struct tensor **made) {
    (void)device, (void)index;
    int64_t count = 1;
    for (int64_t dim = 0; dim < rank; dim++)
        count *= sizes[dim];
    return new_tensor(malloc((size_t)(count * element_size(type)) + 1), true, rank, sizes, strides, type, made);
}

int32_t aoti_torch_delete_tensor_object(struct tensor *tensor) {
    if (tensor->owns)
        free(tensor->data);
    free(tensor);
    live--;
    return 0;
}

/* Copies element by element, by the strides of both. */
int32_t aoti_torch_copy_(struct tensor *target, struct tensor *source, int32_t non_blocking) {
    (void)non_blocking;
    int64_t count = 1, size = element_size(source->type);
    for (int64_t dim = 0; dim < source->rank; dim++)
        count *= source->sizes[dim];
    for (int64_t element = 0; element < count; element++) {
        int64_t rest = element, from = 0, to = 0;
        for (int64_t dim = source->rank - 1; dim >= 0; dim--) {
            int64_t place = rest % source->sizes[dim];
            rest /= source->sizes[dim];
            from += place * source->strides[dim];
            to += place * target->strides[dim];
        }
        memcpy(target->data + to * size, source->data + from * size, (size_t)size);
    }
    return 0;
}

#define READER(name, result, value) \
    int32_t aoti_torch_get_##name(struct tensor *tensor, result *place) { \
        *place = value; \
        return 0; \
    }
READER(data_ptr, void *, tensor->data)
READER(dim, int64_t, tensor->rank)
READER(sizes, int64_t *, tensor->sizes)
READER(strides, int64_t *, tensor->strides)
READER(dtype, int32_t, tensor->type)
int32_t aoti_torch_get_device_type(struct tensor *tensor, int32_t *place) {
    (void)tensor;
    *place = 0;
    return 0;
}
