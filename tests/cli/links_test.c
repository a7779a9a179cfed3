/*
 * Every command that opens an embedded store, as root, on a store of another
 * user who has put links into it. Root's files stay as they are, what root does
 * besides stays root's, and the message says what to remove. Another user sees
 * the same refusals.
 */
#include "harness.h"

#include <dirent.h>

#define OWNER 65534 /* nobody */
#define SECRET "root's own\n"

static void write_file(const char *name, const char *text) {
    int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

/* Leaves it to the owner, with all that is in it; nothing where this is not root. */
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

/* Only the store's files are used as its owner: the folder of this test is root's alone. */
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

/* A FIFO that a waiter has made, replaced by what its owner likes. */

static void put_link(const char *path) {
    CHECK(symlink(in_folder("victim"), path) == 0);
}

static void put_hard_link(const char *path) {
    CHECK(link(in_folder("victim"), path) == 0);
}

static void put_file(const char *path) {
    int fd = creat(path, 0666);

    CHECK(fd >= 0);
    CHECK(geteuid() != 0 || fchown(fd, OWNER, OWNER) == 0); /* so that it could be written */
    close(fd);
}

static void put_folder(const char *path) {
    CHECK(mkdir(path, 0700) == 0);
}

static void wake_replaced(void (*put)(const char *path)) {
    struct proc first, waiter;
    struct stat st;
    struct ran ran;

    store_make();
    first = START_SH("w", script("%s; echo second", until_there("go")));
    WAIT_UNTIL(wrote(first.verdict, "run "));
    waiter = START_SH("w", script("%s; echo second", until_there("go")), "--wait", "10m");
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
    ran = proc_wait(&waiter); /* which polls, since it cannot be woken */
    CHECK_INT(ran.status, 0);
    CHECK_STR(ran.out, "second\n");
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

/* Left over from a process that died, as its owner would have it. */
TEST(a_waiter_makes_its_fifo_anew_and_not_behind_a_link) {
    struct proc first, waiter;
    struct stat st;

    store_make();
    CHECK(symlink(in_folder("victim"), in_folder("store/wake.0")) == 0);
    first = START_SH("w", until_there("go"));
    WAIT_UNTIL(wrote(first.verdict, "run "));
    waiter = START_SH("w", until_there("go"), "--wait", "10m");
    WAIT_UNTIL(lstat(in_folder("store/wake.0"), &st) == 0 && S_ISFIFO(st.st_mode));
    make_there("go");
    CHECK_INT(proc_wait(&first).status, 0);
    CHECK_INT(proc_wait(&waiter).status, 0);
    check_victim();
}

TEST_MAIN
