// Mgrid's kernels, a thread for each point that is written. The names and formulas are those of mgrid.rs. Sums are
// added up in the same order: first lines, then points of these sums.

typedef unsigned long long count;

// By distance: of a point itself, its faces, edges and corners.
struct Weights {
    double point, faces, edges, corners;
};

// A periodic grid of n points in each dimension, around the line through (z, y).
struct Around {
    const double *grid;
    count n, z, y;

    __device__ double at(count dz, count dy, count x) const {
        return grid[((z + dz) % n * n + (y + dy) % n) * n + x];
    }
    __device__ double here(count x) const { return 0.0 + at(0, 0, x); }
    __device__ double near(count x) const {
        return 0.0 + at(0, 1, x) + at(0, n - 1, x) + at(1, 0, x) + at(n - 1, 0, x);
    }
    __device__ double far(count x) const {
        return 0.0 + at(1, 1, x) + at(1, n - 1, x) + at(n - 1, 1, x) + at(n - 1, n - 1, x);
    }
    __device__ double sum(Weights weights, count x) const {
        count before = (x + n - 1) % n, behind = (x + 1) % n;
        return weights.point * here(x) + weights.faces * (here(before) + here(behind) + near(x)) +
               weights.edges * (near(before) + near(behind) + far(x)) +
               weights.corners * (far(before) + far(behind));
    }
};

// Adds the weighted sums of the points around, times a sign: to what was there, to nothing, or to other values.
extern "C" __global__ void apply(count items, count n, double point, double faces, double edges, double corners,
                                 double sign, count anew, const double *begin, const double *from, double *to) {
    count item = blockIdx.x * (count)blockDim.x + threadIdx.x;
    if (item >= items) return;
    Around around{from, n, item / n / n, item / n % n};
    double sum = around.sum({point, faces, edges, corners}, item % n);
    double old = anew ? 0.0 : begin[item];
    to[item] = old + sign * sum;
}

extern "C" __global__ void restriction(count items, count half, double point, double faces, double edges,
                                       double corners, const double *fine, double *coarse) {
    count item = blockIdx.x * (count)blockDim.x + threadIdx.x;
    if (item >= items) return;
    count z = item / half / half, y = item / half % half, x = item % half;
    Around around{fine, 2 * half, 2 * z + 1, 2 * y + 1};
    coarse[item] = around.sum({point, faces, edges, corners}, 2 * x + 1);
}

extern "C" __global__ void prolongation(count items, count n, count anew, const double *coarse, double *fine) {
    count item = blockIdx.x * (count)blockDim.x + threadIdx.x;
    if (item >= items) return;
    count half = n / 2, at[3] = {item / n / n, item / n % n, item % n}, next[3][2];
    for (int axis = 0; axis < 3; axis++) {
        // Coarse points are at odd places of the fine grid.
        next[axis][1] = at[axis] / 2;
        next[axis][0] = at[axis] % 2 ? at[axis] / 2 : (at[axis] / 2 + half - 1) % half;
    }
    double sum = 0.0;
    for (int z = 0; z < 2; z++)
        for (int y = 0; y < 2; y++)
            for (int x = 0; x < 2; x++) sum += coarse[(next[0][z] * half + next[1][y]) * half + next[2][x]];
    fine[item] = (anew ? 0.0 : fine[item]) + sum / 8.0;
}
