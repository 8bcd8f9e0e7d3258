// BackProp's kernels. The names and formulas are those of backprop.rs.

typedef unsigned long long count;

// What a block of inputs adds to the sum of each hidden unit: a thread for each of both.
extern "C" __global__ void sums(count items, count hidden, count block, const float *input, const float *weights,
                                float *sums) {
    count item = blockIdx.x * (count)blockDim.x + threadIdx.x;
    if (item >= items) return;
    count begin = item / hidden * block, unit = item % hidden;
    float sum = 0.0f;
    for (count i = begin; i < begin + block; i++) sum += input[i] * weights[i * hidden + unit];
    sums[item] = sum;
}

// New weights: a thread for each.
extern "C" __global__ void adjust(count items, count hidden, double rate, double momentum, const float *input,
                                  const float *deltas, float *weights, float *changes) {
    count item = blockIdx.x * (count)blockDim.x + threadIdx.x;
    if (item >= items) return;
    float change = (float)rate * deltas[item % hidden] * input[item / hidden] + (float)momentum * changes[item];
    changes[item] = change;
    weights[item] += change;
}
