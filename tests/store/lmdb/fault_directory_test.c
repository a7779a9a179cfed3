/*
 * The store's directory in every state: a path that is no directory or cannot
 * be written, a store of a newer version, two ways to sync at once, a machine
 * that crashed under sync=off. Each is a clear error that names the fault, and
 * a refusal changes nothing.
 */
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "raw.h"
#include "rig.h"
#include "test.h"

#define OLD_BOOT "00000000-0000-0000-0000-000000000000"

static const char *folder_of(const char *name) {
    return rig_path(rig_folder(), name);
}

/* A closed store with one record. */
static void make(void *url) {
    struct idem *h = rig_handle(url);

    rig_call_runs(h, "kept", "result", 6);
    idem_close(h);
}

static void store_made(const char *options) {
    rig_child_ok("making", make, (void *)rig_url("store", options));
}

static void kept(void *url) {
    struct idem *h = rig_handle(url);

    CHECK(rig_call_replays(h, "kept", "result", 6));
    idem_close(h);
}

static void check_kept(const char *options) {
    kept((void *)rig_url("store", options));
}

static void state_read(char out[256]) {
    size_t n = rig_file_read(rig_path(folder_of("store"), "idem.state"), out, 255);

    out[n] = '\0';
}

/* Directories. */

TEST(a_folder_that_is_a_file_is_refused) {
    struct idem_error err;
    char text[4];

    rig_file_write(folder_of("store"), "mine", 4);
    CHECK_INT(rig_refused(rig_url("store", NULL), &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, folder_of("store"));
    CHECK_HAS(err.text, "Not a directory");
    CHECK_INT(rig_file_read(folder_of("store"), text, 4), 4);
}

TEST(a_folder_whose_parent_is_missing_is_refused) {
    struct idem_error err;

    CHECK_INT(rig_refused(rig_url("nowhere/store", NULL), &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, folder_of("nowhere/store"));
    CHECK_HAS(err.text, "No such file or directory");
    CHECK_HAS(err.text, "make the directory above it");
}

TEST(a_store_that_is_not_there_is_not_made_with_create_no) {
    struct idem_error err;

    CHECK_INT(rig_refused(rig_url("store", "create=no"), &err), IDEM_E_ABSENT);
    CHECK_HAS(err.text, "no store");
    CHECK_HAS(err.text, folder_of("store"));
    CHECK(access(folder_of("store"), F_OK) < 0);
    CHECK(mkdir(folder_of("store"), 0700) == 0);
    CHECK_INT(rig_refused(rig_url("store", "create=no"), &err), IDEM_E_ABSENT);
    CHECK_INT(rig_file_count(folder_of("store"), ""), 0);
    store_made(NULL);
    check_kept("create=no");
    CHECK_INT(rig_refused(rig_url("store", "create=perhaps"), &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "allowed: yes, no");
}

static void with_little_room(void *url) {
    struct rlimit little = {(rlim_t)1 << 30, (rlim_t)1 << 30};
    struct idem_error err;

    CHECK(setrlimit(RLIMIT_AS, &little) == 0);
    CHECK_INT(rig_refused(url, &err), IDEM_E_NOMEM);
    CHECK_HAS(err.text, "ulimit -v");
    CHECK_HAS(err.text, "size=");
}

TEST(a_map_for_which_there_is_no_address_space_names_the_limit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return; /* the sanitizers reserve terabytes */
#endif
    rig_child_ok("ulimit", with_little_room, (void *)rig_url("store", NULL));
}

TEST(a_data_file_that_is_a_folder_is_refused) {
    struct idem_error err;

    CHECK(mkdir(folder_of("store"), 0700) == 0);
    CHECK(mkdir(folder_of("store/data.mdb"), 0700) == 0);
    CHECK(rig_refused(rig_url("store", NULL), &err) != 0);
    CHECK_HAS(err.text, folder_of("store"));
}

/* Root may write anywhere, so the child becomes the user `nobody` first. */
static void become_nobody(void) {
    if (geteuid() != 0)
        return;
    CHECK(setgroups(0, NULL) == 0);
    CHECK(setgid(65534) == 0);
    CHECK(setuid(65534) == 0);
}

struct refusal {
    const char *url, *path, *why;
    int code;
};

static void refused_as_nobody(void *data) {
    const struct refusal *refusal = data;
    struct idem_error err;

    become_nobody();
    CHECK_INT(rig_refused(refusal->url, &err), refusal->code);
    CHECK_HAS(err.text, refusal->path);
    CHECK_HAS(err.text, refusal->why);
}

TEST(a_folder_that_may_not_be_written_is_refused_with_the_reason) {
    struct refusal refusal = {rig_url("store", NULL), folder_of("store"), "Permission denied",
                              IDEM_E_REFUSED};

    store_made(NULL);
    CHECK(chmod(rig_folder(), 0755) == 0);
    CHECK(chmod(folder_of("store"), 0555) == 0);
    for (unsigned i = 0; i < 2; i++) {
        rig_child_ok("not writable", refused_as_nobody, &refusal);
        CHECK(chmod(folder_of("store"), i == 0 ? 0000 : 0700) == 0);
    }
    check_kept(NULL);
}

TEST(a_new_folder_in_one_that_may_not_be_written_is_refused_with_the_reason) {
    struct refusal refusal = {rig_url("store", NULL), folder_of("store"), "Permission denied",
                              IDEM_E_REFUSED};

    CHECK(chmod(rig_folder(), 0555) == 0);
    rig_child_ok("not writable", refused_as_nobody, &refusal);
    CHECK(chmod(rig_folder(), 0700) == 0);
}

/* Each file of the store in turn, in a directory that is writable. */
TEST(a_file_that_may_not_be_written_is_refused_with_the_reason) {
    static const char *const names[] = {"data.mdb", "lock.mdb", "idem.lock", "idem.shared"};
    struct refusal refusal = {rig_url("store", NULL), folder_of("store"), "Permission denied",
                              IDEM_E_REFUSED};

    store_made(NULL);
    CHECK(chmod(rig_folder(), 0755) == 0);
    CHECK(chmod(folder_of("store"), 0777) ==
          0); /* root refuses a directory of this mode, other users do not */
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
            CHECK(chmod(rig_path(folder_of("store"), names[k]), k == i ? 0444 : 0666) == 0);
        CHECK(chmod(rig_path(folder_of("store"), "idem.state"), 0666) == 0);
        rig_child_ok(names[i], refused_as_nobody, &refusal);
    }
    for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
        CHECK(chmod(rig_path(folder_of("store"), names[k]), 0600) == 0);
    CHECK(chmod(folder_of("store"), 0700) == 0);
    check_kept(NULL);
}

static void on_read_only_mount(void *data) {
    const struct refusal *refusal = data;
    struct idem_error err;
    const char *folder = refusal->path;

    if (unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) < 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount(folder, folder, NULL, MS_BIND, NULL) < 0 ||
        mount(folder, folder, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) < 0) {
        fprintf(stderr, "# no read-only mount here: %s\n", strerror(errno));
        return;
    }
    CHECK_INT(rig_refused(refusal->url, &err), refusal->code);
    CHECK_HAS(err.text, folder);
    CHECK_HAS(err.text, refusal->why);
}

TEST(a_read_only_file_system_is_refused_with_the_reason) {
    struct refusal refusal = {rig_url("store", NULL), folder_of("store"), "Read-only file system",
                              IDEM_E_REFUSED};

    store_made(NULL);
    rig_child_ok("read-only", on_read_only_mount, &refusal);
    check_kept(NULL);
}

/* Newer versions. */

TEST(a_state_file_of_a_newer_version_is_refused_and_left_alone) {
    static const char text[] = "idem-store 2\nsomething new\n";
    struct idem_error err;
    char now[256];

    store_made(NULL);
    rig_file_write(rig_path(folder_of("store"), "idem.state"), text, strlen(text));
    CHECK_INT(rig_refused(rig_url("store", NULL), &err), IDEM_E_VERSION);
    CHECK_HAS(err.text, folder_of("store/idem.state"));
    CHECK_HAS(err.text, "newer version");
    CHECK_HAS(err.text, "format 2");
    state_read(now);
    CHECK_STR(now, text);
}

static void format_put(uint32_t format) {
    struct raw raw;

    raw_begin(&raw, folder_of("store"), true);
    raw_put(&raw, "meta", "format", 6, &format, sizeof(format));
    raw_end(&raw);
}

TEST(data_of_a_newer_version_is_refused_and_left_alone) {
    struct idem_error err;
    char before[256], after[256];

    store_made("sync=off");
    state_read(before);
    format_put(2);
    CHECK_INT(rig_refused(rig_url("store", "sync=off"), &err), IDEM_E_VERSION);
    CHECK_HAS(err.text, folder_of("store/data.mdb"));
    CHECK_HAS(err.text, "newer version");
    state_read(after);
    CHECK_STR(after, before);
    format_put(1);
    check_kept("sync=off");
}

TEST(a_record_of_a_newer_version_is_refused_and_its_neighbours_are_not) {
    struct rig rig;
    struct rig_claim claim;
    struct idem_record_key key = rig_key(IDEM_NAME_RECORD, "rig:", "kept");
    struct idem_op op = {.kind = IDEM_OP_FORGET, .key = key, .in.forget.force = true};

    store_made("sync=off");
    raw_record_newer(folder_of("store"), &key);
    rig_open(&rig, rig_url("store", "sync=off"), NULL);
    CHECK_INT(rig_claim(&rig, "kept", &claim), IDEM_E_VERSION);
    CHECK_HAS(rig.error.text, "newer version");
    CHECK_HAS(rig.error.text, folder_of("store"));
    /* The record is not damaged: a newer version may need it. */
    CHECK_INT(rig_run(&rig, &op, NULL, NULL), IDEM_E_VERSION);
    rig_once(&rig, "other", "x", 1);
    CHECK(rig_holds(&rig, "other", "x", 1));
    rig_close(&rig);
    CHECK_INT(raw_count(folder_of("store"), "records"), 2);
}

/* Two ways to sync. */

TEST(two_ways_to_sync_in_one_process_are_refused) {
    struct idem *h = rig_handle(rig_url("store", "sync=off")), *same;
    struct idem_error err;

    CHECK_INT(rig_refused(rig_url("store", "sync=always"), &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, folder_of("store"));
    CHECK_HAS(err.text, "sync");
    same = rig_handle(rig_url("store", "sync=off"));
    rig_call_runs(h, "a", "1", 1);
    CHECK(rig_call_replays(same, "a", "1", 1));
    idem_close(h);
    CHECK_INT(rig_refused(rig_url("store", "sync=always"), &err), IDEM_E_REFUSED);
    idem_close(same);
    h = rig_handle(rig_url("store", "sync=always"));
    CHECK(rig_call_replays(h, "a", "1", 1));
    idem_close(h);
}

static void refused(void *data) {
    const struct refusal *refusal = data;
    struct idem_error err;

    CHECK_INT(rig_refused(refusal->url, &err), refusal->code);
    CHECK_HAS(err.text, refusal->path);
    CHECK_HAS(err.text, refusal->why);
}

TEST(a_second_handle_with_other_options_is_refused) {
    static const char *const others[] = {"size=1G", "accept_loss=yes", "accept_clock=yes"};
    struct idem *h = rig_handle(rig_url("store", NULL)), *same;
    struct idem_error err;

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        CHECK_INT(rig_refused(rig_url("store", others[i]), &err), IDEM_E_REFUSED);
        CHECK_HAS(err.text, "close it first");
    }
    same = rig_handle(rig_url("store", "create=no&size=16G"));
    idem_close(same);
    idem_close(h);
}

TEST(two_ways_to_sync_in_two_processes_are_refused) {
    static const char *const ways[] = {"sync=off", "sync=always"};

    store_made(NULL);
    for (unsigned i = 0; i < 2; i++) {
        struct idem *h = rig_handle(rig_url("store", ways[i]));
        struct refusal refusal = {rig_url("store", ways[!i]), folder_of("store"), ways[i],
                                  IDEM_E_REFUSED};
        char before[256], after[256];

        state_read(before);
        rig_child_ok(ways[i], refused, &refusal);
        state_read(after);
        CHECK_STR(after, before);
        rig_child_ok("the same way", kept, (void *)rig_url("store", ways[i]));
        CHECK(rig_call_replays(h, "kept", "result", 6));
        idem_close(h);
    }
}

TEST(the_way_to_sync_may_change_between_clean_closes) {
    store_made("sync=off");
    check_kept("sync=always");
    check_kept("sync=off");
    check_kept("sync=off");
    check_kept(NULL);
    check_kept("sync=off&accept_loss=yes");
    CHECK_INT(rig_file_count(folder_of("store"), "data.mdb.lost"), 0);
}

/* A machine that crashed. */

static void open_and_die(void *url) {
    struct idem *h = rig_handle(url);

    rig_call_runs(h, "kept", "result", 6);
    raise(SIGKILL);
}

static void die_with(const char *options) {
    CHECK_INT(rig_child(open_and_die, (void *)rig_url("store", options)), SIGKILL);
}

/* Changes the state as if the machine had restarted since. */
static void boot_change(void) {
    char text[256], *boot;

    state_read(text);
    boot = strstr(text, "boot ");
    CHECK(boot != NULL && strlen(boot) > strlen(OLD_BOOT) + 5);
    memcpy(boot + 5, OLD_BOOT, strlen(OLD_BOOT));
    rig_file_write(rig_path(folder_of("store"), "idem.state"), text, strlen(text));
}

TEST(a_process_that_died_under_sync_off_lost_nothing) {
    die_with("sync=off");
    check_kept("sync=off");
    check_kept("sync=always");
}

static void check_loss_refused(const char *options) {
    struct idem_error err;
    char before[256], after[256];

    state_read(before);
    CHECK_INT(rig_refused(rig_url("store", options), &err), IDEM_E_CORRUPT);
    CHECK_HAS(err.text, folder_of("store"));
    CHECK_HAS(err.text, "sync=off");
    CHECK_HAS(err.text, "accept_loss=yes");
    CHECK_INT(rig_file_count(folder_of("store"), "data.mdb.lost"), 0);
    state_read(after);
    CHECK_STR(after, before);
}

TEST(a_machine_that_went_down_under_sync_off_is_refused_until_the_loss_is_accepted) {
    static const char *const ways[] = {"sync=off", "sync=always"};

    die_with("sync=off");
    boot_change();
    for (unsigned i = 0; i < 2; i++)
        for (unsigned again = 0; again < 2; again++)
            check_loss_refused(ways[i]);
}

static void lost_file(char out[512]) {
    char command[600];
    FILE *list;

    snprintf(command, sizeof(command), "ls %s/data.mdb.lost-*", folder_of("store"));
    list = popen(command, "r");
    CHECK(list != NULL && fgets(out, 512, list) != NULL);
    out[strcspn(out, "\n")] = '\0';
    pclose(list);
}

static void accept_loss(const char *options) {
    struct idem *h = rig_handle(rig_url("store", options));
    struct idem_stats stats;

    CHECK_INT(idem_stats(h, &stats, NULL), 0);
    CHECK_INT(stats.done, 0);
    rig_call_runs(h, "kept", "result", 6);
    idem_close(h);
}

TEST(an_accepted_loss_starts_empty_and_keeps_the_old_file) {
    char lost[512];

    die_with("sync=off");
    boot_change();
    accept_loss("sync=off&accept_loss=yes");
    CHECK_INT(rig_file_count(folder_of("store"), "data.mdb.lost"), 1);
    check_kept("sync=off");
    /* The data file that accept_loss set aside can still be read. */
    lost_file(lost);
    CHECK(rename(lost, folder_of("store/data.mdb")) == 0);
    check_kept("sync=off");
}

TEST(a_second_loss_does_not_overwrite_what_the_first_one_set_aside) {
    for (unsigned i = 1; i <= 3; i++) {
        die_with("sync=off");
        boot_change();
        accept_loss(i == 2 ? "sync=always&accept_loss=yes" : "sync=off&accept_loss=yes");
        CHECK_INT(rig_file_count(folder_of("store"), "data.mdb.lost"), i);
        CHECK(unlink(folder_of("store/data.mdb")) == 0);
    }
}

/* A process was killed during its first open, before there were records: the store has only
 * small files. */
TEST(a_first_open_that_was_killed_halfway_is_no_loss) {
    static const char *const names[] = {"idem.lock", "lock.mdb", "data.mdb"};

    CHECK(mkdir(folder_of("store"), 0700) == 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        rig_file_write(rig_path(folder_of("store"), names[i]), "", 0);
    store_made("sync=off");
    check_kept("sync=off");
}

TEST(a_machine_that_went_down_after_a_clean_close_lost_nothing) {
    store_made("sync=off");
    boot_change();
    check_kept("sync=off");
}

TEST(a_machine_that_went_down_under_sync_always_lost_nothing) {
    die_with("sync=always");
    boot_change();
    check_kept("sync=always");
}

/* The store was closed cleanly; a process then fails to open it, and then the machine crashes. */
TEST(a_failed_open_does_not_make_a_clean_store_unclean) {
    struct idem_error err;

    store_made("sync=off");
    format_put(2);
    CHECK_INT(rig_refused(rig_url("store", "sync=off"), &err), IDEM_E_VERSION);
    format_put(1);
    boot_change();
    check_kept("sync=off");
}

TEST_MAIN
