/* One rank of the MPI side of `everfold bench compare`. Usage: peer SOCKET
 *
 * It does what the driver at the other end of SOCKET writes, a line of numbers at a time:
 *
 *   bytes repetitions count roots delay_us compute_us round ...
 *
 * and answers with a line: the start and the end of each repetition in nanoseconds, [[start,end],...], or "!" and what
 * is wrong. Between two lines it blocks in read(2) and takes no processor time from others.
 *
 * A repetition: barrier, wait delay_us; start the clock; reduce `count` bodies of `bytes` bytes, while computing for
 * compute_us without a call to the library; stop the clock. The results go to rank 0, each to another rank, or to all.
 * Or nothing is reduced, and a piece of `bytes` bytes in all is gathered, exchanged or broadcast. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

/* What goes to whom. */
enum { ONE, ROTATING, ALL, ALLGATHER, EXCHANGE, BROADCAST };

static int rank, size;

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* The sums of up to 512 ranks are whole numbers below 2^24: exact in any order. */
static float element(long index, long round) { return (index + round) % 127 + 1; }

static void fill(float *body, long elements, long round)
{
    for (long i = 0; i < elements; i++) body[i] = (rank + 1) * element(i, round);
}

static long first_wrong(const float *body, long elements, long round)
{
    for (long i = 0; i < elements; i++)
        if (body[i] != size * (size + 1) / 2 * element(i, round)) return i;
    return -1;
}

/* Fills a piece with values of its own, which its number stands for. */
static void fill_piece(float *piece, long elements, long number, long round)
{
    for (long i = 0; i < elements; i++) piece[i] = (number + 1) * element(i, round);
}

static int is_piece(const float *piece, long elements, long number, long round)
{
    for (long i = 0; i < elements; i++)
        if (piece[i] != (number + 1) * element(i, round)) return 0;
    return 1;
}

/* One repetition in which nothing is reduced. Returns the first wrong element, or -1. */
static long bring(long roots, long elements, long round, long delay_us, float *given, float *taken, long long times[2])
{
    long piece = roots == BROADCAST ? elements : elements / size > 0 ? elements / size : 1;
    long pieces = roots == BROADCAST ? 1 : size;
    if (roots == EXCHANGE)
        for (long to = 0; to < size; to++) fill_piece(given + to * piece, piece, rank * size + to, round);
    else if (roots == ALLGATHER || rank == 0)
        fill_piece(roots == BROADCAST ? taken : given, piece, rank, round);
    MPI_Barrier(MPI_COMM_WORLD);
    if (delay_us) usleep(delay_us);
    times[0] = now_ns();
    if (roots == ALLGATHER) MPI_Allgather(given, piece, MPI_FLOAT, taken, piece, MPI_FLOAT, MPI_COMM_WORLD);
    if (roots == EXCHANGE) MPI_Alltoall(given, piece, MPI_FLOAT, taken, piece, MPI_FLOAT, MPI_COMM_WORLD);
    if (roots == BROADCAST) MPI_Bcast(taken, piece, MPI_FLOAT, 0, MPI_COMM_WORLD);
    times[1] = now_ns();
    MPI_Barrier(MPI_COMM_WORLD);
    for (long from = 0; from < pieces; from++)
        if (!is_piece(taken + from * piece, piece, roots == EXCHANGE ? from * size + rank : from, round))
            return from * piece;
    return -1;
}

static int root(long number, long roots) { return roots == ROTATING ? number % size : 0; }

static volatile double sink;

static void compute(long long until_ns)
{
    while (now_ns() < until_ns)
        for (int i = 0; i < 1000; i++) sink += i;
}

static float *allocate(long elements)
{
    float *body = malloc(elements * sizeof *body);
    if (!body) MPI_Abort(MPI_COMM_WORLD, 12);
    memset(body, 0, elements * sizeof *body);
    return body;
}

int main(int argc, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, argc > 1 ? argv[1] : "", sizeof address.sun_path - 1);
    int driver = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(driver, (struct sockaddr *)&address, sizeof address)) MPI_Abort(MPI_COMM_WORLD, 2);
    FILE *in = fdopen(driver, "r"), *out = fdopen(dup(driver), "w");
    fprintf(out, "%d\n", rank);
    fflush(out);

    long bytes, repetitions, count, roots, delay_us, compute_us, round;
    while (fscanf(in, "%ld %ld %ld %ld %ld %ld %ld%*[^\n]", &bytes, &repetitions, &count, &roots, &delay_us, &compute_us,
                  &round) == 7) {
        long elements = bytes / sizeof(float), wrong = -1;
        float **given = calloc(count, sizeof *given), **taken = calloc(count, sizeof *taken);
        MPI_Request *requests = calloc(count, sizeof *requests);
        long long(*times)[2] = calloc(repetitions, sizeof *times);
        for (long k = 0; k < count; k++) {
            given[k] = allocate(elements + size);
            if (roots >= ALL || rank == root(k, roots)) taken[k] = allocate(elements + size);
        }
        for (long repetition = 0; repetition < repetitions; repetition++) {
            if (roots > ALL) {
                long first = bring(roots, elements, round + repetition, delay_us, given[0], taken[0], times[repetition]);
                if (first >= 0) wrong = first;
                continue;
            }
            for (long k = 0; k < count; k++) fill(given[k], elements, round + repetition + k);
            MPI_Barrier(MPI_COMM_WORLD);
            if (delay_us) usleep(delay_us);
            times[repetition][0] = now_ns();
            if (roots == ALL) {
                for (long k = 0; k < count; k++)
                    MPI_Allreduce(given[k], taken[k], elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            } else if (count == 1 && !compute_us) {
                MPI_Reduce(given[0], taken[0], elements, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
            } else {
                for (long k = 0; k < count; k++)
                    MPI_Ireduce(given[k], taken[k], elements, MPI_FLOAT, MPI_SUM, root(k, roots), MPI_COMM_WORLD,
                                &requests[k]);
                if (compute_us) compute(times[repetition][0] + compute_us * 1000);
                MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
            }
            times[repetition][1] = now_ns();
            MPI_Barrier(MPI_COMM_WORLD);
            for (long k = 0; k < count && wrong < 0; k++)
                if (taken[k]) wrong = first_wrong(taken[k], elements, round + repetition + k);
        }
        if (wrong >= 0) fprintf(out, "!element %ld of %ld is wrong", wrong, elements);
        for (long i = 0; i < repetitions && wrong < 0; i++)
            fprintf(out, "%c[%lld,%lld]", i ? ',' : '[', times[i][0], times[i][1]);
        fprintf(out, wrong < 0 ? "]\n" : "\n");
        fflush(out);
        for (long k = 0; k < count; k++) free(given[k]), free(taken[k]);
        free(given), free(taken), free(requests), free(times);
    }
    MPI_Finalize();
    return 0;
}
