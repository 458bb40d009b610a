/* What the stand-ins for compiled code use of the stand-in for PyTorch's library. */
#include <stdint.h>

struct tensor;
int64_t stand_in_live_tensors(void);
int64_t stand_in_threads(void);
int32_t torch_get_num_threads(uint32_t *count);
int32_t aoti_torch_dtype_int64(void);
int32_t aoti_torch_empty_strided(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, struct tensor **);
int32_t aoti_torch_copy_(struct tensor *, struct tensor *, int32_t);
int32_t aoti_torch_delete_tensor_object(struct tensor *);
int32_t aoti_torch_get_data_ptr(struct tensor *, void **);
int32_t aoti_torch_get_dim(struct tensor *, int64_t *);
int32_t aoti_torch_get_sizes(struct tensor *, int64_t **);
int32_t aoti_torch_get_strides(struct tensor *, int64_t **);
int32_t aoti_torch_get_dtype(struct tensor *, int32_t *);
