/*
 * A store whose directory belongs to another user, opened by root. Root acts as
 * that user, and nothing that the user puts there makes root write to, create
 * or read a file of root's, or trust the content of a file. Tests that need
 * root are skipped for other users.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "rig.h"
#include "test.h"
#include "wait.h"

#define OWNER 65534 /* the user `nobody` */
#define STORE "store"
#define SECRET "root's own"
#define OTHER 65533
#define HITS 20          /* of each outcome, while files are swapped */
#define TRIES_MAX 100000 /* only a failure reaches this number */

static const char *in_store(const char *name) {
    return rig_path(rig_path(rig_folder(), STORE), name);
}

static const char *victim(void) {
    return rig_path(rig_folder(), "victim");
}

#define NEEDS_ROOT()                                                                               \
    do {                                                                                           \
        if (geteuid() != 0)                                                                        \
            SKIP("not root");                                                                      \
    } while (0)

/* A closed store with one record. */
static void make(void *url) {
    struct idem *h = rig_handle(url);

    rig_call_runs(h, "kept", "result", 6);
    idem_close(h);
}

static void give(uid_t uid) {
    const char *path = rig_path(rig_folder(), STORE);
    DIR *dir = opendir(path);
    struct dirent *entry;

    CHECK(dir != NULL && chown(path, uid, uid) == 0);
    while ((entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.')
            CHECK(fchownat(dirfd(dir), entry->d_name, uid, uid, AT_SYMLINK_NOFOLLOW) == 0);
    closedir(dir);
}

/* A store of another user, if the test runs as root; and a file outside the store. */
static void store_made(const char *options) {
    rig_child_ok("making", make, (void *)rig_url(STORE, options));
    if (geteuid() == 0)
        give(OWNER);
    rig_file_write(victim(), SECRET, strlen(SECRET));
    CHECK(chmod(victim(), 0600) == 0);
}

static void check_victim(void) {
    char text[64];
    struct stat st;
    size_t n = rig_file_read(victim(), text, sizeof(text));

    CHECK_INT(n, strlen(SECRET));
    CHECK(memcmp(text, SECRET, n) == 0);
    CHECK(stat(victim(), &st) == 0);
    CHECK_INT(st.st_uid, geteuid());
    CHECK_INT(st.st_mode & 07777, 0600);
    CHECK(access(rig_path(rig_folder(), "absent"), F_OK) < 0);
}

/* The kinds of entries that may stand in place of a file of the store. */

static void put_link(const char *path) {
    CHECK(symlink(victim(), path) == 0);
}

static void put_dangling(const char *path) {
    CHECK(symlink(rig_path(rig_folder(), "absent"), path) == 0);
}

static void put_hard_link(const char *path) {
    CHECK(link(victim(), path) == 0);
}

static void put_fifo(const char *path) {
    CHECK(mkfifo(path, 0600) == 0);
}

static void put_folder(const char *path) {
    CHECK(mkdir(path, 0700) == 0);
}

static void put_device(const char *path) {
    if (geteuid() == 0 && mknod(path, S_IFCHR | 0666, makedev(1, 3)) == 0)
        return;
    /* Only root may make a device, and not in every container. */
    fprintf(stderr, "# no device can be made here: a FIFO stands for it\n");
    put_fifo(path);
}

static const struct {
    void (*put)(const char *path);
    const char *word;
} kinds[] = {
    {put_link, "is a symbolic link"}, {put_dangling, "is a symbolic link"},
    {put_hard_link, "hard links"},    {put_fifo, "is a FIFO"},
    {put_folder, "is a directory"},   {put_device, "is a"},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static bool kept_in(const char *url) {
    struct idem *h = rig_handle(url);
    bool kept = rig_call_replays(h, "kept", "result", 6);

    idem_close(h);
    return kept;
}

static void each_name_and_kind(const char *options) {
    static const char *const names[] = {"data.mdb", "lock.mdb", "idem.lock", "idem.shared",
                                        "idem.state"};

    store_made(options);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        CHECK(rename(in_store(names[i]), in_store("away")) == 0);
        for (size_t k = 0; k < KINDS; k++) {
            struct idem_error err;

            kinds[k].put(in_store(names[i]));
            if (geteuid() == 0 && kinds[k].put != put_hard_link)
                CHECK(lchown(in_store(names[i]), OWNER, OWNER) == 0);
            CHECK_INT(rig_refused(rig_url(STORE, options), &err), IDEM_E_REFUSED);
            CHECK_HAS(err.text, in_store(names[i]));
            CHECK_HAS(err.text, kinds[k].word);
            CHECK_HAS(err.text, "remove");
            check_victim();
            CHECK(remove(in_store(names[i])) == 0);
        }
        CHECK(rename(in_store("away"), in_store(names[i])) == 0);
    }
    CHECK(kept_in(rig_url(STORE, options)));
}

TEST(what_is_not_a_file_of_the_store_is_refused_and_not_written_to) {
    each_name_and_kind(NULL);
}

TEST(what_is_not_a_file_of_the_store_is_refused_and_not_written_to_with_sync_off) {
    each_name_and_kind("sync=off");
}

TEST(root_uses_another_users_store_and_leaves_it_to_that_user) {
    static const char *const options[] = {NULL, "sync=off"};
    struct dirent *entry;
    struct stat st;
    DIR *dir;

    NEEDS_ROOT();
    for (size_t i = 0; i < 2; i++) {
        store_made(options[i]);
        /* Root makes the store anew. */
        CHECK(unlink(in_store("idem.shared")) == 0 && unlink(in_store("lock.mdb")) == 0 &&
              unlink(in_store("idem.lock")) == 0);
        CHECK(kept_in(rig_url(STORE, options[i])));
        dir = opendir(rig_path(rig_folder(), STORE));
        while ((entry = readdir(dir)) != NULL) {
            CHECK(fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0);
            CHECK(st.st_uid == OWNER || strcmp(entry->d_name, "..") == 0);
        }
        closedir(dir);
        check_victim();
        CHECK(unlink(in_store("data.mdb")) == 0 && unlink(in_store("idem.state")) == 0);
    }
}

/* A line of /proc/self/task/TID/status. */
static bool status_line(const char *tid, const char *name, char *ret, size_t size) {
    char path[300];
    FILE *file;
    bool found = false;

    snprintf(path, sizeof(path), "/proc/self/task/%s/status", tid);
    file = fopen(path, "re");
    while (file != NULL && !found && fgets(ret, (int)size, file) != NULL)
        found = strncmp(ret, name, strlen(name)) == 0;
    if (file != NULL)
        fclose(file);
    return found;
}

/* The number of threads of this process that use files as that user. */
static unsigned threads_as(unsigned uid) {
    DIR *dir = opendir("/proc/self/task");
    struct dirent *entry;
    unsigned n = 0, real, effective, saved, files;
    char line[256];

    CHECK(dir != NULL);
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.' || !status_line(entry->d_name, "Uid:", line, sizeof(line)))
            continue;
        CHECK(sscanf(line, "Uid: %u %u %u %u", &real, &effective, &saved, &files) == 4);
        CHECK(real == 0 && effective == 0 && saved == 0);
        n += files == uid;
        if (files != 0 && status_line(entry->d_name, "Groups:", line, sizeof(line)))
            CHECK(strstr(line, " 4242 ") == NULL);
    }
    closedir(dir);
    return n;
}

TEST(only_the_thread_that_writes_stays_the_owner_and_without_roots_groups) {
    static const gid_t groups[] = {0, 4242};
    gid_t after[8];
    struct idem *h;

    NEEDS_ROOT();
    store_made(NULL);
    CHECK(setgroups(2, groups) == 0);
    h = rig_handle(rig_url(STORE, NULL));
    CHECK_INT(setfsuid((uid_t)-1), 0);
    CHECK_INT(setfsgid((gid_t)-1), 0);
    CHECK_INT(getgroups(8, after), 2);
    CHECK(after[0] == 0 && after[1] == 4242);
    CHECK_INT(threads_as(OWNER), 1);
    rig_call_runs(h, "more", "x", 1);
    idem_close(h);
    CHECK_INT(threads_as(OWNER), 0);
    CHECK_INT(setfsuid((uid_t)-1), 0);
    rig_file_write(rig_path(rig_folder(), "log"), "x", 1); /* only root may write there */
}

/* The owner swaps a file and a link as fast as it can, while root opens the store. */
struct swap {
    const char *name, *other;
};

static void swap_on(void *data) {
    const struct swap *swap = data;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
        (void)syscall(SYS_renameat2, AT_FDCWD, swap->name, AT_FDCWD, swap->other,
                      2 /* RENAME_EXCHANGE */);
}

static void open_while_swapped(const char *name, void (*put)(const char *path)) {
    struct swap swap = {strdup(in_store(name)), strdup(in_store("other"))};
    unsigned opened = 0, refused = 0;
    pid_t pid;
    int status;

    put(swap.other);
    CHECK(lchown(swap.other, OWNER, OWNER) == 0);
    pid = rig_spawn(swap_on, &swap);
    for (int i = 0; (opened < HITS || refused < HITS) && i < TRIES_MAX; i++) {
        struct idem_error err;
        struct idem *h;

        if (idem_open(rig_url(STORE, NULL), NULL, &h, &err) == 0) {
            idem_close(h);
            opened++;
        } else {
            refused++;
        }
        check_victim();
    }
    CHECK(opened >= HITS);
    CHECK(refused >= HITS);
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, &status, 0) == pid);
    (void)unlink(swap.other);
    CHECK(rename(rig_path(rig_folder(), STORE), rig_path(rig_folder(), name)) == 0);
    free((void *)swap.name);
    free((void *)swap.other);
}

TEST(a_link_that_is_swapped_in_at_any_moment_leads_root_nowhere) {
    static const char *const names[] = {"lock.mdb", "data.mdb", "idem.shared", "idem.lock"};

    NEEDS_ROOT();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        store_made(NULL);
        open_while_swapped(names[i], i % 2 == 0 ? put_dangling : put_link);
    }
}

TEST(a_file_of_roots_in_another_users_store_is_refused_and_says_whose_it_should_be) {
    struct idem_error err;

    NEEDS_ROOT();
    store_made(NULL);
    CHECK(chown(in_store("data.mdb"), 0, 0) == 0);
    CHECK_INT(rig_refused(rig_url(STORE, NULL), &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, in_store("data.mdb"));
    CHECK_HAS(err.text, "chown 65534");
    CHECK(chown(in_store("data.mdb"), OWNER, OWNER) == 0);
    CHECK(kept_in(rig_url(STORE, NULL)));
}

/* Root that has dropped CAP_SETUID. */
static void without_setuid(void *data) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct caps[2];
    struct idem_error err;

    CHECK(syscall(SYS_capget, &head, caps) == 0);
    for (int i = 0; i < 2; i++) {
        uint32_t keep = i == 0 ? ~(uint32_t)(1u << CAP_SETUID | 1u << CAP_SETGID) : ~0u;

        caps[i].effective &= keep;
        caps[i].permitted &= keep;
    }
    CHECK(syscall(SYS_capset, &head, caps) == 0);
    CHECK_INT(rig_refused(data, &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, "belongs to uid 65534");
    CHECK_HAS(err.text, "start this as that user");
}

TEST(root_that_may_not_become_the_owner_is_refused) {
    NEEDS_ROOT();
    store_made(NULL);
    rig_child_ok("without CAP_SETUID", without_setuid, (void *)rig_url(STORE, NULL));
    check_victim();
}

/* As servers do: they open as root and become another user. */
static void leave_root(void *data) {
    struct idem *h = rig_handle(data);

    CHECK(setgroups(0, NULL) == 0 && setgid(OWNER) == 0 && setuid(OWNER) == 0);
    rig_call_runs(h, "later", "x", 1);
    CHECK(rig_call_replays(h, "kept", "result", 6));
    idem_close(h);
}

TEST(a_process_that_stops_being_root_goes_on_with_its_store) {
    NEEDS_ROOT();
    store_made(NULL);
    rig_child_ok("no longer root", leave_root, (void *)rig_url(STORE, NULL));
    CHECK(kept_in(rig_url(STORE, NULL)));
}

/* The owner's actions at the worst moments: between our lstat and LMDB's open, and after that
 * open. The thread acts as the owner by then, so the owner must be able to pass the test's
 * directory. */
static struct { void (*before)(void), (*after)(void); } moment;

/* Replaces LMDB's function, and calls it. */
int mdb_env_open(MDB_env *env, const char *path, unsigned flags, mdb_mode_t mode) {
    int (*real)(MDB_env *, const char *, unsigned, mdb_mode_t);
    int rc;

    *(void **)&real = dlsym(RTLD_NEXT, "mdb_env_open");
    CHECK(real != NULL);
    if (moment.before != NULL)
        moment.before();
    rc = real(env, path, flags, mode);
    if (moment.after != NULL)
        moment.after();
    return rc;
}

static void data_linked(void) {
    CHECK(rename(in_store("data.mdb"), in_store("away")) == 0);
    put_link(in_store("data.mdb"));
}

static void lock_dangling(void) {
    CHECK(rename(in_store("lock.mdb"), in_store("away")) == 0);
    put_dangling(in_store("lock.mdb"));
}

TEST(a_link_put_there_just_before_LMDB_opens_leads_root_nowhere) {
    struct idem_error err;

    NEEDS_ROOT();
    store_made(NULL);
    CHECK(chmod(rig_folder(), 0711) == 0);
    moment.before = data_linked;
    CHECK_INT(rig_refused(rig_url(STORE, NULL), &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, "Permission denied");
    check_victim();
    CHECK(rename(in_store("away"), in_store("data.mdb")) == 0);
    moment.before = lock_dangling;
    CHECK_INT(rig_refused(rig_url(STORE, NULL), &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, "Permission denied");
    check_victim();
}

/* The next file of this name is swapped right after a stat. */
static struct {
    const char *name;
    void (*put)(const char *path);
} looked;

/* Replaces the C library's function, and calls it. */
int fstatat(int fd, const char *restrict name, struct stat *restrict ret, int flags) {
    int (*real)(int, const char *, struct stat *, int);
    int rc;

    *(void **)&real = dlsym(RTLD_NEXT, "fstatat");
    CHECK(real != NULL);
    rc = real(fd, name, ret, flags);
    if (looked.name != NULL && strcmp(name, looked.name) == 0) {
        looked.name = NULL;
        CHECK(rename(in_store(name), in_store("away")) == 0);
        looked.put(in_store(name));
    }
    return rc;
}

/* This holds in a directory of one's own, too: to own the directory is no help there. */
TEST(a_link_put_there_between_our_look_and_our_open_is_not_followed) {
    static const char *const names[] = {"idem.lock", "idem.shared", "idem.state"};
    static void (*const puts[])(const char *) = {put_link, put_dangling};
    struct idem_error err;

    store_made(NULL);
    if (geteuid() == 0)
        give(0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        for (size_t k = 0; k < sizeof(puts) / sizeof(puts[0]); k++) {
            looked.name = names[i];
            looked.put = puts[k];
            CHECK_INT(rig_refused(rig_url(STORE, NULL), &err), IDEM_E_REFUSED);
            CHECK(looked.name == NULL); /* the file was swapped */
            check_victim();
            CHECK(rename(in_store("away"), in_store(names[i])) == 0);
        }
    CHECK(kept_in(rig_url(STORE, NULL)));
}

static void lock_swapped(void) {
    CHECK(rename(in_store("lock.mdb"), in_store("away")) == 0);
    rig_file_write(in_store("lock.mdb"), "", 0);
}

static void lock_swapped_back(void) {
    CHECK(rename(in_store("away"), in_store("lock.mdb")) == 0);
}

TEST(another_lock_file_that_had_the_name_while_LMDB_opened_is_noticed) {
    struct idem_error err;

    store_made(NULL);
    CHECK(chmod(rig_folder(), 0711) == 0);
    moment.before = lock_swapped;
    moment.after = lock_swapped_back;
    CHECK_INT(rig_refused(rig_url(STORE, NULL), &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, in_store("lock.mdb"));
    CHECK_HAS(err.text, "was replaced");
    moment.before = moment.after = NULL;
    CHECK(kept_in(rig_url(STORE, NULL)));
}

/* A data file that leads LMDB beyond its end, with everything else as a clean close left it. */
static void data_crafted(void) {
    struct {
        uint32_t magic, version;
        uint64_t address, size, tables[12], last_page, number;
    } meta;
    struct timespec times[2];
    struct stat st;
    int fd = open(in_store("data.mdb"), O_RDWR | O_CLOEXEC);

    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    for (off_t page = 0; page < 2; page++) {
        off_t at = page * sysconf(_SC_PAGESIZE) + 16;

        CHECK(pread(fd, &meta, sizeof(meta), at) == (ssize_t)sizeof(meta));
        CHECK_INT(meta.magic, 0xBEEFC0DE);
        meta.tables[11] = 100000; /* the page where all tables begin */
        meta.last_page = 200000;
        CHECK(pwrite(fd, &meta, sizeof(meta), at) == (ssize_t)sizeof(meta));
    }
    times[0] = st.st_atim;
    times[1] = st.st_mtim;
    CHECK(futimens(fd, times) == 0);
    close(fd);
}

static void crafted_refused(void *url) {
    struct idem_error err;

    CHECK_INT(rig_refused(url, &err), IDEM_E_CORRUPT);
    CHECK_HAS(err.text, STORE "/data.mdb");
}

TEST(the_owners_word_that_the_data_is_whole_is_not_taken_by_root) {
    static const char *const options[] = {NULL, "sync=off"};

    NEEDS_ROOT();
    for (size_t i = 0; i < 2; i++) {
        store_made(options[i]);
        data_crafted();
        rig_child_ok("crafted data", crafted_refused, (void *)rig_url(STORE, options[i]));
        CHECK(unlink(in_store("data.mdb")) == 0 && unlink(in_store("idem.state")) == 0);
    }
}

/* Root opens the store as the gateway of www-data created it. */
static void owner_holds(void *data) {
    const struct swap *names = data;
    struct idem *h;

    CHECK(setgroups(0, NULL) == 0 && setgid(OWNER) == 0 && setuid(OWNER) == 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of user clears this setting */
    h = rig_handle(names->name);
    CHECK(creat(names->other, 0600) >= 0);
    for (;;)
        pause();
    idem_close(h);
}

TEST(a_store_that_another_process_has_open_is_refused_to_root_and_not_to_its_owner) {
    struct swap names = {rig_url(STORE, NULL), in_store("open")};
    struct idem_error err;
    int status;
    pid_t pid;

    NEEDS_ROOT();
    store_made(NULL);
    CHECK(chmod(rig_folder(), 0711) == 0);
    pid = rig_spawn(owner_holds, &names);
    WAIT_UNTIL(access(in_store("open"), F_OK) == 0);
    CHECK_INT(rig_refused(rig_url(STORE, NULL), &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, "belongs to uid 65534");
    CHECK_HAS(err.text, "start this as that user");
    idem_store_become_owner();
    CHECK(kept_in(rig_url(STORE, NULL)));
    CHECK_INT(geteuid(), OWNER);
    kill(pid, SIGKILL); /* the child has one user by now */
    CHECK(waitpid(pid, &status, 0) == pid);
}

static void stay_owner(void *url) {
    uid_t uids[3];
    gid_t gids[3], groups[8];
    struct idem *h;

    idem_store_become_owner();
    h = rig_handle(url);
    CHECK(getresuid(&uids[0], &uids[1], &uids[2]) == 0);
    CHECK(getresgid(&gids[0], &gids[1], &gids[2]) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(uids[i] == OWNER && gids[i] == OWNER);
    for (int i = getgroups(8, groups) - 1; i >= 0; i--)
        CHECK(groups[i] != 0 && groups[i] != 4242);
    CHECK(setuid(0) < 0 && seteuid(0) < 0);
    CHECK(open(victim(), O_RDONLY) < 0);
    CHECK_INT(prctl(PR_GET_DUMPABLE), 0);
    CHECK(rig_call_replays(h, "kept", "result", 6));
    rig_call_runs(h, "more", "x", 1);
    idem_close(h);
}

TEST(a_program_that_starts_nothing_becomes_the_owner_for_good) {
    static const gid_t groups[] = {0, 4242};

    NEEDS_ROOT();
    store_made(NULL);
    CHECK(setgroups(2, groups) == 0);
    rig_child_ok("the owner for good", stay_owner, (void *)rig_url(STORE, NULL));
    CHECK(kept_in(rig_url(STORE, NULL)));
}

static void stay_root(void *url) {
    idem_store_become_owner();
    CHECK(kept_in(url));
    CHECK_INT(geteuid(), 0);
}

TEST(a_store_of_roots_is_used_as_root) {
    NEEDS_ROOT();
    store_made(NULL);
    give(0);
    rig_child_ok("root's", stay_root, (void *)rig_url(STORE, NULL));
}

TEST(a_directory_that_others_may_write_to_is_refused_to_root) {
    static const mode_t modes[] = {0720, 0702, 0777, 01777};
    struct idem_error err;

    NEEDS_ROOT();
    store_made(NULL);
    for (size_t i = 0; i < 2 * sizeof(modes) / sizeof(modes[0]); i++) {
        give(i % 2 == 0 ? OWNER : 0);
        CHECK(chmod(rig_path(rig_folder(), STORE), modes[i / 2]) == 0);
        CHECK_INT(rig_refused(rig_url(STORE, NULL), &err), IDEM_E_REFUSED);
        CHECK_HAS(err.text, rig_path(rig_folder(), STORE));
        CHECK_HAS(err.text, "chmod go-w");
        CHECK(chmod(rig_path(rig_folder(), STORE), 0755) == 0);
        CHECK(kept_in(rig_url(STORE, NULL)));
    }
}

/* The way to the directory. */

static void link_make(const char *name, const char *to, uid_t uid) {
    CHECK(symlink(rig_path(rig_folder(), to), rig_path(rig_folder(), name)) == 0);
    CHECK(lchown(rig_path(rig_folder(), name), uid, uid) == 0);
}

static void link_refused(const char *name, unsigned uid) {
    struct idem_error err;
    char owner[32];

    snprintf(owner, sizeof(owner), "a link of uid %u", uid);
    CHECK_INT(rig_refused(rig_url(name, NULL), &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, rig_path(rig_folder(), name));
    CHECK_HAS(err.text, owner);
}

TEST(another_users_link_does_not_lead_root_into_a_directory_of_roots) {
    NEEDS_ROOT();
    CHECK(mkdir(rig_path(rig_folder(), "roots"), 0700) == 0);
    link_make("link", "roots", OWNER);
    link_refused("link", OWNER);
    link_refused("link/", OWNER);
    CHECK_INT(rig_file_count(rig_path(rig_folder(), "roots"), ""), 0);
    CHECK(lchown(rig_path(rig_folder(), "link"), 0, 0) == 0);
    idem_close(rig_handle(rig_url("link", NULL)));
}

TEST(another_users_link_does_not_lead_root_into_a_third_users_store) {
    NEEDS_ROOT();
    store_made(NULL);
    link_make("link", STORE, OTHER);
    link_refused("link", OTHER);
    CHECK(lchown(rig_path(rig_folder(), "link"), OWNER, OWNER) == 0);
    CHECK(kept_in(rig_url("link", NULL)));
    CHECK(lchown(rig_path(rig_folder(), "link"), 0, 0) == 0);
    CHECK(kept_in(rig_url("link", NULL)));
}

TEST(a_link_in_the_middle_of_the_path_is_judged_like_one_at_its_end) {
    NEEDS_ROOT();
    store_made(NULL);
    CHECK(mkdir(rig_path(rig_folder(), "a"), 0755) == 0);
    CHECK(rename(rig_path(rig_folder(), STORE), rig_path(rig_folder(), "a/store")) == 0);
    link_make("link", "a", OTHER);
    link_refused("link/store", OTHER);
    link_refused("link/../link/./store", OTHER);
    CHECK(lchown(rig_path(rig_folder(), "link"), OWNER, OWNER) == 0);
    CHECK(kept_in(rig_url("link/store", NULL)));
    link_make("second", "link", OTHER); /* a link to a link, of two users */
    link_refused("second/store", OWNER);
    CHECK(lchown(rig_path(rig_folder(), "second"), 0, 0) == 0);
    CHECK(kept_in(rig_url("second//store/", NULL)));
    CHECK(rename(rig_path(rig_folder(), "a/store"), rig_path(rig_folder(), STORE)) == 0);
}

TEST(a_directory_is_not_made_behind_a_link_of_another_user) {
    NEEDS_ROOT();
    CHECK(mkdir(rig_path(rig_folder(), "a"), 0755) == 0);
    link_make("link", "a", OWNER);
    link_refused("link/new", OWNER);
    link_make("dangling", "a/new", OWNER);
    link_refused("dangling", OWNER);
    CHECK_INT(rig_file_count(rig_path(rig_folder(), "a"), "new"), 0);
    CHECK(lchown(rig_path(rig_folder(), "link"), 0, 0) == 0);
    idem_close(rig_handle(rig_url("link/new", NULL)));
    CHECK(access(rig_path(rig_folder(), "a/new/data.mdb"), F_OK) == 0);
}

TEST(links_that_lead_in_a_circle_are_refused) {
    struct idem_error err;

    link_make("one", "two", geteuid());
    link_make("two", "one", geteuid());
    CHECK_INT(rig_refused(rig_url("one/store", NULL), &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, "Too many levels of symbolic links");
}

TEST(a_path_that_begins_where_the_program_is_leads_there) {
    store_made(NULL);
    CHECK(chdir(rig_folder()) == 0);
    CHECK(kept_in("lmdb:" STORE));
    CHECK(kept_in("lmdb:./" STORE "/../" STORE "/"));
}

TEST(a_link_to_the_directory_is_followed_for_whoever_may) {
    store_made(NULL);
    CHECK(symlink(rig_path(rig_folder(), STORE), rig_path(rig_folder(), "link")) == 0);
    CHECK(kept_in(rig_url("link", NULL)));
}

TEST_MAIN
