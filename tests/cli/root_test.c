/*
 * Every command that opens an embedded store, as root, on a store of another
 * user who has put links into it. Root's files stay as they are, root's other
 * actions stay root's, and the message names the entry to remove. Another user
 * sees the same refusals. A command that starts no other program becomes the
 * owner for good.
 */
#include "harness.h"

#include <dirent.h>
#include <grp.h>
#include <sys/prctl.h>

#include "idem.h"

#define OWNER 65534 /* the user `nobody` */
#define SECRET "root's own\n"

static void write_file(const char *name, const char *text) {
    int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

/* Gives the store to the owner, with all its files; does nothing if the test does not run as
 * root. */
static void store_give(void) {
    DIR *dir = opendir(in_folder("store"));
    struct dirent *entry;

    CHECK(dir != NULL);
    while (geteuid() == 0 && (entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, "..") != 0)
            CHECK(fchownat(dirfd(dir), entry->d_name, OWNER, OWNER, AT_SYMLINK_NOFOLLOW) == 0);
    closedir(dir);
}

static void store_make(void) {
    CHECK_INT(RUN_SH("k", "echo first").status, 0);
    store_give();
    write_file("victim", SECRET);
}

static void check_victim(void) {
    struct stat st;

    CHECK_STR(file_text("victim"), SECRET);
    CHECK(stat(in_folder("victim"), &st) == 0);
    CHECK_INT(st.st_uid, geteuid());
}

static const char *const *const commands[] = {
    (const char *const[]){"list", NULL},
    (const char *const[]){"stats", NULL},
    (const char *const[]){"show", "k", NULL},
    (const char *const[]){"settle", "--done", "k", NULL},
    (const char *const[]){"settle", "--failed", "--state", "uncertain", "--yes", NULL},
    (const char *const[]){"forget", "k", NULL},
    (const char *const[]){"run", "--key", "k", "--", "true", NULL},
    (const char *const[]){"run", "--key", "k", "--at", "1h", "--", "true", NULL},
    (const char *const[]){"token", "--scope", "none", NULL},
    (const char *const[]){"id", "--snowflake", NULL},
};

TEST(no_command_follows_a_link_in_the_store) {
    static const char *const names[] = {"idem.shared", "idem.lock", "lock.mdb", "data.mdb",
                                        "idem.state"};

    store_make();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *name = script("store/%s", names[i]);

        CHECK(rename(in_folder(name), in_folder("away")) == 0);
        CHECK(symlink(in_folder("victim"), in_folder(name)) == 0);
        for (size_t k = 0; k < sizeof(commands) / sizeof(commands[0]); k++) {
            struct ran ran = run_argv(commands[k]);

            CHECK_INT(ran.status, 69);
            CHECK_HAS(ran.err, in_folder(name));
            CHECK_HAS(ran.err, "is a symbolic link");
            CHECK_STR(ran.out, "");
            check_victim();
        }
        CHECK(unlink(in_folder(name)) == 0 && rename(in_folder("away"), in_folder(name)) == 0);
    }
    CHECK_HAS(RUN("list").out, "done");
}

TEST(a_doctor_does_not_follow_a_link_in_the_store) {
    store_make();
    CHECK(unlink(in_folder("store/idem.shared")) == 0);
    CHECK(symlink(in_folder("victim"), in_folder("store/idem.shared")) == 0);
    CHECK_HAS(RUN("doctor", "--store", getenv("IDEM_STORE")).out, "is a symbolic link");
    check_victim();
}

/* Only the store's files are used as the owner: this test's directory is root's alone. */
TEST(the_audit_and_the_command_stay_roots) {
    struct ran ran;
    struct stat st;

    store_make();
    CHECK_INT(RUN("forget", "k").status, 0);
    CHECK_HAS(file_text("audit"), "\"action\":\"forget\"");
    CHECK(stat(in_folder("audit"), &st) == 0);
    CHECK_INT(st.st_uid, geteuid());
    ran = RUN_SH("k", script("id -u; echo ran >%s", in_folder("ran")));
    CHECK_INT(ran.status, 0);
    CHECK_STR(ran.out, script("%ld\n", (long)geteuid()));
    CHECK_STR(file_text("ran"), "ran\n");
}

/* Commands that start no other program. */

/* A full pipe, on which a writer waits. Returns its writing end. */
static int full_pipe(int *ret_read) {
    static const char bytes[4096];
    int ends[2];

    CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    while (write(ends[1], bytes, sizeof(bytes)) > 0)
        continue;
    CHECK(fcntl(ends[1], F_SETFL, 0) == 0);
    *ret_read = ends[0];
    return ends[1];
}

static pid_t start_into(int out, const char *const *argv) {
    const char *args[64] = {harness_exe()};
    pid_t pid;

    for (int i = 0; argv[i] != NULL && i < 62; i++)
        args[i + 1] = argv[i];
    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(out, 1);
        execv(args[0], (char **)args);
        _exit(99);
    }
    return pid;
}

/* The text after a name in /proc/PID/status, up to the end of the line. */
static const char *status_of(pid_t pid, const char *name) {
    char *text = proc_text(pid, "status"), *at = strstr(text, name);

    if (at == NULL)
        return "";
    at += strlen(name);
    at[strcspn(at, "\n")] = '\0';
    return at;
}

static void is_owner_for_good(const char *const *argv) {
    const char *ids = script("\t%d\t%d\t%d\t%d", OWNER, OWNER, OWNER, OWNER);
    int reader, status, out = full_pipe(&reader);
    pid_t pid = start_into(out, argv);
    char bytes[4096];
    struct stat st;

    close(out);
    WAIT_UNTIL(strcmp(status_of(pid, "\nUid:"), ids) == 0);
    CHECK_STR(status_of(pid, "\nGid:"), ids);
    CHECK(strstr(status_of(pid, "\nGroups:"), "4242") == NULL);
    CHECK(strtoull(status_of(pid, "\nCapPrm:"), NULL, 16) == 0);
    CHECK(strtoull(status_of(pid, "\nCapEff:"), NULL, 16) == 0);
    /* The owner may not look at the descriptors, because some may be of root's files. */
    CHECK(stat(script("/proc/%d/fd", (int)pid), &st) == 0);
    CHECK_INT(st.st_uid, 0);
    CHECK(fcntl(reader, F_SETFL, 0) == 0);
    while (read(reader, bytes, sizeof(bytes)) > 0)
        continue;
    close(reader);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
}

static const char *const *const silent[] = {
    (const char *const[]){"list", NULL},
    (const char *const[]){"stats", NULL},
    (const char *const[]){"show", "k", NULL},
    (const char *const[]){"settle", "--dry-run", "k", NULL},
    (const char *const[]){"settle", "--failed", "--state", "uncertain", "--yes", NULL},
    (const char *const[]){"token", "--scope", "none", NULL},
    (const char *const[]){"id", "--snowflake", NULL},
    (const char *const[]){"forget", "k", NULL},
};

TEST(a_command_that_starts_none_becomes_the_owner_for_good) {
    static const gid_t groups[] = {0, 4242};

    if (geteuid() != 0)
        SKIP("not root");
    store_make();
    CHECK(setgroups(2, groups) == 0);
    for (size_t i = 0; i < sizeof(silent) / sizeof(silent[0]); i++)
        is_owner_for_good(silent[i]);
    CHECK_HAS(file_text("audit"), "\"action\":\"forget\"");
}

TEST(what_only_root_may_read_or_write_is_open_before) {
    struct ran ran;

    if (geteuid() != 0)
        SKIP("not root");
    store_make();
    write_file("list", "0123456789012345678901234567890123456789012345678901234567890123\n");
    ran = RUN("settle", "--failed", "--state", "uncertain", "--prefix", "run:", "--only",
              in_folder("list"), "--yes");
    CHECK_INT(ran.status, 0);
    CHECK_HAS(ran.out, "1 of");
    CHECK_INT(RUN("forget", "k").status, 0);
    CHECK_HAS(file_text("audit"), "\"result\":\"done\"");
}

/* Examining the next store may need root again. */
TEST(a_doctor_stays_root_for_what_comes_after_a_store) {
    struct ran ran;

    store_make();
    write_file("settings", "[policy p]\nprefix = p:\nscope = none\n");
    ran = RUN("doctor", "--store", getenv("IDEM_STORE"), "--config", in_folder("settings"));
    CHECK_STR(ran.err, "");
    CHECK_HAS(ran.out, "permissions: a record was claimed");
    CHECK_HAS(ran.out, "policy p");
    CHECK_HAS(ran.out, "\n0 broken");
}

/* Files that the owner has crafted. */

/* A page number leads LMDB beyond the file's end; everything else is as after a clean close. */
static void data_craft(void) {
    int fd = open(in_folder("store/data.mdb"), O_RDWR | O_CLOEXEC);
    uint64_t page = 100000, last = 200000;
    struct timespec times[2];
    struct stat st;

    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    for (off_t at = 16; at <= sysconf(_SC_PAGESIZE) + 16; at += sysconf(_SC_PAGESIZE)) {
        CHECK(pwrite(fd, &page, sizeof(page), at + 112) == (ssize_t)sizeof(page));
        CHECK(pwrite(fd, &last, sizeof(last), at + 120) == (ssize_t)sizeof(last));
    }
    times[0] = st.st_atim;
    times[1] = st.st_mtim;
    CHECK(futimens(fd, times) == 0);
    close(fd);
}

TEST(crafted_data_with_a_clean_mark_is_refused_by_every_command_of_root) {
    if (geteuid() != 0)
        SKIP("not root");
    store_make();
    data_craft();
    for (size_t k = 0; k < sizeof(commands) / sizeof(commands[0]); k++) {
        struct ran ran = run_argv(commands[k]);

        CHECK_INT(ran.status, 69);
        CHECK_HAS(ran.err, in_folder("store/data.mdb"));
    }
    CHECK_HAS(RUN("doctor", "--store", getenv("IDEM_STORE")).out, "broken");
}

/* Another process, which has the store open as its owner. */
static pid_t owner_start(void (*do_it)(struct idem *h)) {
    pid_t pid;

    CHECK(geteuid() != 0 || chmod(harness_folder(), 0711) == 0);
    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct idem_error err;
        struct idem *h;

        CHECK(geteuid() != 0 || (setgroups(0, NULL) == 0 && setresgid(OWNER, OWNER, OWNER) == 0 &&
                                 setresuid(OWNER, OWNER, OWNER) == 0));
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        CHECK(idem_open(getenv("IDEM_STORE"), NULL, &h, &err) == 0);
        do_it(h);
        idem_close(h);
        _exit(0);
    }
    return pid;
}

static void hold(struct idem *h) {
    (void)h;
    close(creat(script("%s/open", strchr(getenv("IDEM_STORE"), ':') + 1), 0600));
    for (;;)
        pause();
}

TEST(what_the_owner_has_open_is_refused_to_a_run_of_root_and_listed) {
    struct ran ran;
    int status;
    pid_t pid;

    if (geteuid() != 0)
        SKIP("not root");
    store_make();
    pid = owner_start(hold);
    WAIT_UNTIL(exists("store/open"));
    ran = RUN_SH("new", script("echo ran >%s", in_folder("ran")));
    CHECK_INT(ran.status, 69);
    CHECK_HAS(ran.err, "start this as that user");
    CHECK(!exists("ran"));
    CHECK_HAS(RUN("list").out, "done");
    CHECK_INT(RUN("forget", "k").status, 0);
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
    CHECK_INT(RUN_SH("new", "true").status, 0);
}

TEST(a_directory_that_others_may_write_to_is_for_those_who_become_its_owner) {
    if (geteuid() != 0)
        SKIP("not root");
    store_make();
    CHECK(chmod(in_folder("store"), 0770) == 0);
    CHECK_HAS(RUN_SH("k", "true").err, "chmod go-w");
    CHECK_HAS(RUN("list").out, "done");
    CHECK(chown(in_folder("store"), 0, 0) == 0); /* no other user to become */
    CHECK_HAS(RUN("list").err, "chmod go-w");
}

/* A waiter's FIFO that its owner has replaced by something else. */

static void put_link(const char *path) {
    CHECK(symlink(in_folder("victim"), path) == 0);
}

static void put_hard_link(const char *path) {
    CHECK(link(in_folder("victim"), path) == 0);
}

static void put_file(const char *path) {
    int fd = creat(path, 0666);

    CHECK(fd >= 0);
    CHECK(geteuid() != 0 || fchown(fd, OWNER, OWNER) == 0); /* so that root could write to it */
    close(fd);
}

static void put_folder(const char *path) {
    CHECK(mkdir(path, 0700) == 0);
}

static char *command; /* the command of the run that is waited for */

static enum idem_result nothing_do(struct idem_run *run, void *data) {
    (void)run;
    (void)data;
    return IDEM_RESULT_DONE;
}

/* Waits for a run of the same command: thus the owner gets a FIFO while root has the store open. */
static void wait_for_run(struct idem *h) {
    struct idem_policy policy = {
        .prefix = "run:", .scope = IDEM_SCOPE_NONE, .mode = IDEM_MODE_REPLAY, .wait_ms = 600000};
    char line[2048] = "sh";
    size_t len = sizeof("sh"), n = strlen(command) + 1;
    struct idem_args args = {.key = "w", .key_len = 1, .fingerprint = line};
    struct idem_guard *guard;
    struct idem_outcome out;
    struct idem_error err;

    CHECK(len + sizeof("-c") + n <= sizeof(line));
    memcpy(line + len, "-c", sizeof("-c"));
    memcpy(line + len + sizeof("-c"), command, n);
    args.fingerprint_len = len + sizeof("-c") + n;
    CHECK(idem_guard_new(h, &policy, &guard, &err) == 0);
    CHECK(idem_call(h, guard, &args, nothing_do, NULL, &out, &err) == 0);
    CHECK_INT(out.verdict, IDEM_REPLAY);
    idem_outcome_release(&out);
    idem_guard_free(guard);
}

static void wake_replaced(void (*put)(const char *path)) {
    struct proc first;
    struct stat st;
    int status;
    pid_t waiter;

    store_make();
    command = script("%s; echo second", until_there("go"));
    first = START_SH("w", command);
    WAIT_UNTIL(wrote(first.verdict, "run "));
    waiter = owner_start(wait_for_run);
    WAIT_UNTIL(exists("store/wake.0"));
    CHECK(stat(in_folder("store/wake.0"), &st) == 0);
    CHECK_INT(st.st_uid, geteuid() == 0 ? OWNER : geteuid());
    CHECK(unlink(in_folder("store/wake.0")) == 0);
    put(in_folder("store/wake.0"));
    make_there("go");
    CHECK_INT(proc_wait(&first).status, 0);
    check_victim();
    if (put == put_file)
        CHECK_STR(file_text("store/wake.0"), "");
    CHECK(waitpid(waiter, &status, 0) ==
          waiter); /* the waiter polls, because no wake-up reaches it */
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
    check_victim();
}

TEST(a_wake_up_is_not_written_through_a_link) {
    wake_replaced(put_link);
}

TEST(a_wake_up_is_not_written_to_a_hard_link) {
    wake_replaced(put_hard_link);
}

TEST(a_wake_up_is_not_written_to_a_file) {
    wake_replaced(put_file);
}

TEST(a_wake_up_is_not_written_to_a_folder) {
    wake_replaced(put_folder);
}

/* A FIFO left by a process that died, which the owner has replaced. */
TEST(a_waiter_makes_its_fifo_anew_and_not_behind_a_link) {
    struct proc first, waiter;
    struct stat st;

    store_make();
    CHECK(symlink(in_folder("victim"), in_folder("store/wake.0")) == 0);
    first = START_SH("w", until_there("go"), "--lease", LEASE);
    WAIT_UNTIL(wrote(first.verdict, "run "));
    CHECK(kill(first.pid, SIGKILL) ==
          0); /* root's run is refused while another process has the store open */
    (void)proc_wait(&first);
    waiter = START_SH("w", until_there("go"), "--lease", LEASE, "--wait", "10m");
    WAIT_UNTIL(lstat(in_folder("store/wake.0"), &st) == 0 && S_ISFIFO(st.st_mode));
    CHECK(kill(waiter.pid, SIGKILL) == 0);
    (void)proc_wait(&waiter);
    make_there("go");
    check_victim();
}

TEST_MAIN
