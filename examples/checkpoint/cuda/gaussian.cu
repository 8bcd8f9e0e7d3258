// Gaussian's kernels. The names and formulas are those of gaussian.rs.

typedef unsigned long long count;

// A thread for each row below.
extern "C" __global__ void multipliers(count items, count column, count width, const float *rows,
                                       float *multipliers) {
    count item = blockIdx.x * (count)blockDim.x + threadIdx.x;
    if (item >= items) return;
    count row = column + 1 + item;
    multipliers[row] = rows[row * width + column] / rows[column * width + column];
}

// A thread for each value that changes: rows below, from this column on.
extern "C" __global__ void eliminate(count items, count column, count width, const float *multipliers,
                                     float *rows) {
    count item = blockIdx.x * (count)blockDim.x + threadIdx.x;
    if (item >= items) return;
    count changed = width - column, row = column + 1 + item / changed, at = column + item % changed;
    rows[row * width + at] -= multipliers[row] * rows[column * width + at];
}
