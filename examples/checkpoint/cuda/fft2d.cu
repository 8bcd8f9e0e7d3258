// FFT2D's kernels. The names are those of fft2d.rs.

typedef unsigned long long count;

// Cooley and Tukey's transform of rows: a block for each row, whose threads wait for one another behind each stage.
extern "C" __global__ void transform(count items, count size, count is_back, const float2 *from, float2 *to) {
    const float2 *source = from + blockIdx.x * size;
    float2 *row = to + blockIdx.x * size;
    int bits = 63 - __clzll(size);
    for (count i = threadIdx.x; i < size; i += blockDim.x) row[bits ? __brevll(i) >> (64 - bits) : 0] = source[i];
    __syncthreads();
    double sign = is_back ? 2.0 : -2.0;
    for (count half = 1; half < size; half *= 2) {
        for (count k = threadIdx.x; k < size / 2; k += blockDim.x) {
            double sin, cos;
            sincospi(sign * (double)(k % half) / (double)(2 * half), &sin, &cos);
            float s = (float)sin, c = (float)cos;
            count low = k / half * 2 * half + k % half, high = low + half;
            float2 a = row[low], b = row[high];
            float2 turned = {b.x * c - b.y * s, b.x * s + b.y * c};
            row[low] = {a.x + turned.x, a.y + turned.y};
            row[high] = {a.x - turned.x, a.y - turned.y};
        }
        __syncthreads();
    }
    if (!is_back) return;
    for (count i = threadIdx.x; i < size; i += blockDim.x) row[i] = {row[i].x / size, row[i].y / size};
}

extern "C" __global__ void transpose(count items, count size, const float2 *from, float2 *to) {
    count item = blockIdx.x * (count)blockDim.x + threadIdx.x;
    if (item < items) to[item] = from[item % size * size + item / size];
}
