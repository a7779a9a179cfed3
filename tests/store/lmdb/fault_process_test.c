/*
 * Outside influences on an open store: processes that are stopped at the wrong
 * moment, files that are removed, replaced or moved, a second machine.
 */
#include <fcntl.h>
#include <lmdb.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "raw.h"
#include "rig.h"
#include "store/lmdb/lmdb_store.h"
#include "test.h"

/* The first call makes the path; children of this process use the same one. */
static const char *folder(void) {
    static char path[256];

    if (path[0] == '\0')
        snprintf(path, sizeof(path), "%s", rig_path(rig_folder(), "store"));
    return path;
}

static const char *url(void) {
    static char text[300];

    snprintf(text, sizeof(text), "lmdb:%s", folder());
    return text;
}

static void make(void *data) {
    struct idem *h = rig_handle(url());

    (void)data;
    rig_call_runs(h, "kept", "result", 6);
    idem_close(h);
}

static void made(void) {
    (void)url();
    rig_child_ok("making", make, NULL);
}

static void kept(void *data) {
    struct idem *h = rig_handle(url());

    (void)data;
    CHECK(rig_call_replays(h, "kept", "result", 6));
    idem_close(h);
}

/* A child that runs `fn` and then stands still; the caller kills it. */
static pid_t stand_still(void (*fn)(int ready_fd)) {
    int ready[2];
    char byte;
    pid_t pid;

    CHECK(pipe(ready) == 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        fn(ready[1]);
        for (;;)
            pause();
    }
    close(ready[1]);
    CHECK_INT(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void gone(pid_t pid) {
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK(waitpid(pid, NULL, 0) == pid);
}

/* Holds the lock of a process that was stopped while it opened the store. */
static void in_the_door(int ready_fd) {
    struct flock door = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    int fd = open(rig_path(folder(), "idem.lock"), O_RDWR);

    CHECK(fd >= 0 && fcntl(fd, F_OFD_SETLK, &door) == 0);
    CHECK_INT(write(ready_fd, "", 1), 1);
}

/* The waits are those of the documents; each test below shortens the ones that it waits for. */
TEST(others_are_waited_for_as_long_as_the_documents_say) {
    CHECK_INT(rig_documented.door, 10);
    CHECK_INT(rig_documented.stop, 10);
    CHECK_INT(rig_documented.busy, 20);
    CHECK_INT(rig_documented.length, 1);
}

TEST(a_process_that_stands_in_the_door_is_not_waited_for_without_end) {
    struct idem_error err;
    int64_t before;
    pid_t pid;

    lmdb_patience.door = 1;
    made();
    pid = stand_still(in_the_door);
    before = idem_loop_now();
    CHECK_INT(rig_refused(url(), &err), IDEM_E_REFUSED);
    CHECK(idem_loop_now() - before >= 1000);
    CHECK_HAS(err.text, "opening or closing the store for more than 1 s;");
    CHECK_HAS(err.text, folder());
    gone(pid);
    kept(NULL);
}

/* Stands inside a write transaction like a stopped process. */
static void writing(int ready_fd) {
    struct idem *h = rig_handle(url());
    MDB_env *env;
    MDB_txn *txn;

    (void)h;
    CHECK(mdb_env_create(&env) == 0 && mdb_env_set_maxdbs(env, 8) == 0);
    CHECK(mdb_env_open(env, folder(), MDB_NOTLS, 0600) == 0);
    CHECK(mdb_txn_begin(env, NULL, 0, &txn) == 0);
    CHECK_INT(write(ready_fd, "", 1), 1);
}

/* Opens the store, replays, and gives up a claim after its timeout. */
static void beside_a_writer(void *data) {
    struct idem_options patient = {.op_timeout_ms = 120000}, hasty = {.op_timeout_ms = 300};
    struct idem *h, *other;
    struct idem_error err;
    enum idem_verdict verdict;

    (void)data;
    CHECK_INT(idem_open(url(), &patient, &h, &err), 0);
    CHECK_INT(idem_open(url(), &hasty, &other, &err), 0);
    CHECK(rig_call_replays(h, "kept", "result", 6));
    CHECK(rig_call(other, "new", "x", 1, &verdict, &err) < 0);
    idem_close(other);
    idem_close(h);
}

/* Closing waits for pending writes; nothing waits for the closing. */
static void *close_it(void *h) {
    idem_close(h);
    return NULL;
}

/* A handle with a claim that waits for the writer. */
static struct idem *waiting(void) {
    struct idem_options options = {.op_timeout_ms = 300};
    enum idem_verdict verdict;
    struct idem_error err;
    struct idem *h;

    CHECK_INT(idem_open(url(), &options, &h, &err), 0);
    CHECK(rig_call(h, "new", "x", 1, &verdict, &err) < 0);
    return h;
}

static pid_t writer;

static void close_beside_a_writer(void *data) {
    struct idem *h = waiting(), *other;
    pthread_t thread;
    int status;
    pid_t pid;

    CHECK(pthread_create(&thread, NULL, close_it, h) == 0);
    rig_sleep(100); /* sleep: until the thread closes, which nothing shows; earlier is right, too */
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        _exit(0);
    CHECK(waitpid(pid, &status, 0) == pid);
    other = rig_handle(data);
    rig_call_runs(other, "k", "x", 1);
    idem_close(other);
    CHECK_INT(pthread_tryjoin_np(thread, NULL), EBUSY);
    CHECK(kill(writer, SIGKILL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void close_in_vain(void *data) {
    struct idem *h = waiting();
    int64_t before = idem_loop_now();
    struct idem_error err;

    (void)data;
    lmdb_patience.stop = lmdb_patience.busy = 1;
    idem_close(h);
    CHECK(idem_loop_now() - before >= lmdb_patience.stop * 1000);
    before = idem_loop_now();
    CHECK_INT(rig_refused(url(), &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, "still opening or closing");
    CHECK(idem_loop_now() - before >= lmdb_patience.busy * 1000);
}

static void replay_beside_a_writer(void *data) {
    kept(data); /* the writer still blocks */
}

TEST(closing_beside_a_stopped_writer_holds_up_neither_forks_nor_other_stores) {
    char other[300];

    snprintf(other, sizeof(other), "%s", rig_url("other", NULL));
    made();
    writer = stand_still(writing);
    rig_child_ok("replaying", replay_beside_a_writer, NULL);
    rig_child_ok("closing in vain", close_in_vain, NULL);
    rig_child_ok("closing", close_beside_a_writer, other);
    CHECK(waitpid(writer, NULL, 0) == writer);
    kept(NULL);
}

TEST(beside_a_process_stopped_while_it_wrote_a_store_opens_and_replays) {
    pid_t pid;

    lmdb_patience.stop = 1;
    made();
    pid = stand_still(writing);
    rig_child_ok("beside it", beside_a_writer, NULL);
    gone(pid);
    rig_child_ok("after it", kept, NULL);
}

/* Checks the response when the files are no longer those that were opened. */
static void check_gone(struct idem *h) {
    struct idem_error err;
    enum idem_verdict verdict;

    rig_sleep(20); /* sleep: the store checks its files every few ms */
    CHECK_INT(rig_call(h, "new", "x", 1, &verdict, &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, "data.mdb");
    CHECK_HAS(err.text, "removed, replaced or moved");
    idem_close(h);
    h = rig_handle(url());
    rig_call_runs(h, "new", "x", 1);
    idem_close(h);
}

static struct idem *opened(void) {
    struct idem *h = rig_handle(url());

    rig_call_runs(h, "kept", "result", 6);
    return h;
}

TEST(a_data_file_that_was_removed_is_not_written_to) {
    struct idem *h = opened();

    CHECK(unlink(rig_path(folder(), "data.mdb")) == 0);
    CHECK(unlink(rig_path(folder(), "lock.mdb")) == 0);
    CHECK(unlink(rig_path(folder(), "idem.state")) == 0);
    check_gone(h);
}

TEST(a_data_file_that_was_replaced_is_not_written_to) {
    struct idem *h = opened();

    rig_file_copy(rig_path(folder(), "data.mdb"), rig_path(folder(), "copy"));
    CHECK(rename(rig_path(folder(), "copy"), rig_path(folder(), "data.mdb")) == 0);
    check_gone(h);
}

TEST(a_folder_that_was_moved_is_not_written_to) {
    struct idem *h = opened();

    CHECK(rename(folder(), rig_path(rig_folder(), "aside")) == 0);
    check_gone(h);
}

TEST(locks_that_were_removed_are_noticed) {
    static const char *const names[] = {"lock.mdb", "idem.lock"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct idem *h = rig_handle(url());
        struct idem_error err;
        enum idem_verdict verdict;

        CHECK(unlink(rig_path(folder(), names[i])) == 0);
        rig_sleep(20); /* sleep: the store checks its files every few ms */
        CHECK_INT(rig_call(h, "new", "x", 1, &verdict, &err), IDEM_E_REFUSED);
        CHECK_HAS(err.text, "removed, replaced or moved");
        idem_close(h);
    }
    rig_child_ok("opened again", make, NULL);
}

TEST(a_store_named_by_a_relative_path_is_still_found_from_another_folder) {
    struct idem *h;

    CHECK(chdir(rig_folder()) == 0);
    h = rig_handle("lmdb:store");
    CHECK(chdir("/") == 0);
    rig_call_runs(h, "kept", "result", 6);
    CHECK(rig_call_replays(h, "kept", "result", 6));
    idem_close(h);
}

static void from_another_machine(void *data) {
    struct idem_error err;

    (void)data;
    CHECK_INT(rig_refused(url(), &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, "another machine");
    CHECK_HAS(err.text, folder());
}

static void boot_change(void *data) {
    (void)data;
    raw_boot_change(folder());
}

/* A process of another boot has the store open, as file locks that reach over a network show. */
TEST(a_store_that_is_open_on_another_machine_is_refused) {
    struct idem *h = opened();

    rig_child_ok("its boot", boot_change, NULL);
    rig_child_ok("from another machine", from_another_machine, NULL);
    CHECK(rig_call_replays(h, "kept", "result", 6));
    idem_close(h);
}

/* The tests mostly wait for timeouts, so several run at a time. */
int main(int argc, char **argv) {
    test_at_a_time = 4;
    return test_main(argc, argv);
}
