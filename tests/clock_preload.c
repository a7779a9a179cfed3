/*
 * Preloaded into a server (LD_PRELOAD): a test sets its time of day, in the memory
 * behind the descriptor IDEM_CLOCK_FD. The server's own timers keep running while
 * the test's time stands still:
 *
 * - PostgreSQL takes its timeouts from the time of day. Only its SQL function
 *   clock_timestamp() reads the test's time; now() and the rest read the real
 *   one.
 * - MariaDB's threads wait until a time of day. The end of a wait that was
 *   computed from the test's time is moved to the real one. Its timers
 *   (thr_timer_settime() and the thread that waits for them) go by the real
 *   clock, and so do its measurements.
 */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unwind.h>

#define SECOND 1000000000ll
#define STACK_NEAR 64 /* words */
#define FRAMES_NEAR                                                                                \
    6 /* the test's function, the server's function that asks for the time, the latter's caller */
#define LATER 1000000000 /* seconds: a smaller number is not a time of day */

struct code {
    uintptr_t from, to;
};

/* The second number is the wall clock: tests/contract/conn.h. */
static const volatile int64_t *clock_at;
static struct code only; /* the one function that gets the test's time; none: all get it */
static const char *const never_names[] = {"thr_timer_settime", "my_timer_nanoseconds",
                                          "my_timer_microseconds", "my_timer_milliseconds"};
#define NEVER (sizeof(never_names) / sizeof(never_names[0]))
static struct code never[NEVER]; /* these functions and their callees get the real time */
static _Thread_local bool real_thread;

static int (*real_gettime)(clockid_t id, struct timespec *ts);
static int (*real_timedwait)(pthread_cond_t *cond, pthread_mutex_t *mutex,
                             const struct timespec *end);

static struct code code_of(const char *name) {
    void *at = dlsym(RTLD_DEFAULT, name);
    const ElfW(Sym) *symbol = NULL;
    Dl_info info;

    if (at == NULL || dladdr1(at, &info, (void **)&symbol, RTLD_DL_SYMENT) == 0 || symbol == NULL)
        return (struct code){0};
    return (struct code){(uintptr_t)at, (uintptr_t)at + symbol->st_size};
}

static bool code_holds(struct code code, uintptr_t at) {
    return at >= code.from && at < code.to;
}

static void real_find(void) {
    if (real_gettime != NULL)
        return;
    real_timedwait = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))dlsym(
        RTLD_NEXT, "pthread_cond_timedwait");
    real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
}

__attribute__((constructor)) static void clock_map(void) {
    const char *fd = getenv("IDEM_CLOCK_FD");
    void *at = fd == NULL ? MAP_FAILED
                          : mmap(NULL, 16, PROT_READ, MAP_SHARED, (int)strtol(fd, NULL, 10), 0);

    real_find();
    only = code_of("clock_timestamp");
    for (size_t i = 0; i < NEVER; i++)
        never[i] = code_of(never_names[i]);
    if (at != MAP_FAILED)
        clock_at = at;
}

struct walk {
    int depth;
    bool found;
};

static bool is_never(uintptr_t at) {
    bool found = false;

    for (size_t i = 0; i < NEVER; i++)
        found |= code_holds(never[i], at);
    return found;
}

static _Unwind_Reason_Code walk_step(struct _Unwind_Context *context, void *data) {
    struct walk *walk = data;

    walk->found = is_never(_Unwind_GetIP(context));
    return walk->found || ++walk->depth == FRAMES_NEAR ? _URC_END_OF_STACK : _URC_NO_REASON;
}

/* Unwinding takes much longer than the rest. A caller that it would find has left an address on
 * the stack, not far up. Such an address may also be an old one: it only starts the unwinding. */
static bool never_asks(void) {
    const uintptr_t *stack = __builtin_frame_address(0);
    struct walk walk = {0};

    for (int i = 0; i < STACK_NEAR; i++)
        if (is_never(stack[i])) {
            _Unwind_Backtrace(walk_step, &walk);
            break;
        }
    return walk.found;
}

/* True if the caller at `from` gets the test's time. */
static bool has_test_time(const void *from) {
    if (clock_at == NULL || real_thread)
        return false;
    if (only.to != 0)
        return code_holds(only, (uintptr_t)from);
    return never[0].to == 0 || !never_asks();
}

static void test_time(struct timespec *ts) {
    int64_t ms = clock_at[1];

    ts->tv_sec = ms / 1000;
    ts->tv_nsec = ms % 1000 * 1000000;
}

static void time_get(struct timespec *ts, const void *from) {
    if (has_test_time(from)) {
        test_time(ts);
        return;
    }
    real_find();
    real_gettime(CLOCK_REALTIME, ts);
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
    struct timespec ts;

    (void)zone;
    time_get(&ts, __builtin_return_address(0));
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
    return 0;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) {
        time_get(ts, __builtin_return_address(0));
        return 0;
    }
    real_find();
    return real_gettime(id, ts);
}

time_t time(time_t *ret) {
    struct timespec ts;

    time_get(&ts, __builtin_return_address(0));
    if (ret != NULL)
        *ret = ts.tv_sec;
    return ts.tv_sec;
}

static int64_t nanoseconds(const struct timespec *ts) {
    return ts->tv_sec * SECOND + ts->tv_nsec;
}

/* A server computes the end from the clock that it reads: it is near the test's time or the real
   one. A thread that waits by the real one has the real time from then on. */
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                           const struct timespec *end) {
    struct timespec test, real, moved;
    int64_t far;

    real_find();
    if (clock_at == NULL || real_thread || end->tv_sec < LATER)
        return real_timedwait(cond, mutex, end);
    test_time(&test);
    real_gettime(CLOCK_REALTIME, &real);
    far = nanoseconds(end) - nanoseconds(&test);
    if (llabs(nanoseconds(end) - nanoseconds(&real)) < llabs(far)) {
        real_thread = true;
        return real_timedwait(cond, mutex, end);
    }
    far += nanoseconds(&real);
    moved = (struct timespec){.tv_sec = far / SECOND, .tv_nsec = far % SECOND};
    return real_timedwait(cond, mutex, &moved);
}
