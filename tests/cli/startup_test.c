/* Checks before a run: settings, stores, usage. */
#include "harness.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <sys/mman.h>
#include <sys/stat.h>

static bool file_has(const char *path, const char *text) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat file;
    bool found;
    void *at;

    CHECK(fd >= 0 && fstat(fd, &file) == 0);
    if (file.st_size == 0) {
        close(fd);
        return false;
    }
    at = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    found = memmem(at, (size_t)file.st_size, text, strlen(text)) != NULL;
    munmap(at, (size_t)file.st_size);
    close(fd);
    return found;
}

/* Settings. */

TEST(settings_give_policies_and_flags_overrule_them) {
    static const char text[] = "[defaults]\nscope = none\n[policy job]\nprefix = job:\n"
                               "mode = reject\n";
    int fd = open(in_folder("idem.conf"), O_CREAT | O_WRONLY, 0600);
    const char *conf = in_folder("idem.conf");
    struct ran ran;

    CHECK(write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1);
    close(fd);
    CHECK_INT(RUN_SH("k", "echo out", "--config", conf, "--policy", "job").status, 0);
    ran = RUN_SH("k", "echo out", "--config", conf, "--policy", "job");
    CHECK(starts_with(ran.err, "idem: duplicate: job:"));
    CHECK_INT(RUN("show", "--prefix", "job:", "k").status, 0);
    ran = RUN_SH("k", ":", "--config", conf, "--policy", "none-such");
    CHECK_INT(ran.status, 78);
    CHECK_HAS(ran.err, conf);
    CHECK_HAS(ran.err, "[policy none-such]");
    CHECK_STR(ran.verdict, "error code=invalid\n");
    RUN_SH("k2", "echo out", "--config", conf, "--policy", "job", "--mode", "replay");
    ran = RUN_SH("k2", "echo out", "--config", conf, "--policy", "job", "--mode", "replay");
    CHECK_STR(ran.out, "out\n");
}

TEST(wrong_settings_are_told_with_file_and_line) {
    int fd = open(in_folder("idem.conf"), O_CREAT | O_WRONLY, 0600);
    struct ran ran;

    CHECK(write(fd, "[defaults]\ncolour = red\n", 24) == 24);
    close(fd);
    ran = RUN_SH("k", ":", "--config", in_folder("idem.conf"));
    CHECK_INT(ran.status, 78);
    CHECK_HAS(ran.err, "idem.conf:2");
    CHECK_INT(RUN_SH("k", ":", "--config", in_folder("none")).status, 78);
    CHECK_INT(RUN_SH("k", ":", "--policy", "job").status, 64);
}

/* Makes a file of settings with these lines; returns its path. */
static const char *settings_write(const char *text) {
    int fd = open(in_folder("idem.conf"), O_CREAT | O_WRONLY | O_TRUNC, 0600);

    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    return in_folder("idem.conf");
}

TEST(settings_that_want_another_kind_of_key_are_refused_by_file_and_policy) {
    char *sh = script("echo x >> %s", in_folder("runs"));
    const char *conf = settings_write("[policy form]\nprefix = form:\nkey = token\n");
    struct ran ran = RUN_SH("k", sh, "--config", conf, "--policy", "form");

    CHECK_INT(ran.status, 78);
    CHECK_HAS(ran.err, "idem.conf: [policy form] has key = token");
    CHECK_INT(RUN_SH("k", sh, "--config", conf).status, 0);
    CHECK_INT(lines_of("runs"), 1);
    conf = settings_write("[defaults]\nkey = token\n[policy job]\nkey = literal\nprefix = job:\n");
    ran = RUN_SH("k2", sh, "--config", conf);
    CHECK_INT(ran.status, 78);
    CHECK_HAS(ran.err, "idem.conf: [defaults] has key = token");
    CHECK_INT(RUN_SH("k2", sh, "--config", conf, "--policy", "job").status, 0);
    CHECK_INT(lines_of("runs"), 2);
}

/* Stores. */

TEST(a_store_that_fails_runs_nothing) {
    char *sh = script("echo x >> %s", in_folder("runs"));
    struct ran ran = RUN_SH("k", sh, "--store", "lmdb:/proc/none/store");

    CHECK_INT(ran.status, 69);
    CHECK(starts_with(ran.err, "idem: store: "));
    CHECK_INT(lines_of("runs"), 0);
    ran = RUN_SH("k", sh, "--store", "nonsense://u:pass@host/");
    CHECK_INT(ran.status, 64);
    CHECK(strstr(ran.err, "pass") == NULL);
}

TEST(a_store_that_fails_is_overlooked_where_the_policy_says_so) {
    struct ran ran = RUN_SH("k", "echo out; echo $IDEM_KEY; exit 3", "--store",
                            "lmdb:/proc/none/store", "--on-store-error", "open", "--at", "1h");

    CHECK_INT(ran.status, 3);
    CHECK(starts_with(ran.out, "out\nk@2"));
    CHECK_HAS(ran.err, "idem: unguarded: ");
    CHECK(starts_with(ran.verdict, "run attempt=0 hash= unguarded=1\nunknown said=none"));
}

/* The message names the place that was searched, and nothing is left there. */
static void no_store_check(struct ran ran, const char *url, const char *made) {
    if (ran.status != 69)
        fprintf(stderr, "# %d: %s%s", ran.status, ran.out, ran.err);
    CHECK_INT(ran.status, 69);
    CHECK(starts_with(ran.err, script("idem: there is no store at %s (idem run makes ", url)));
    CHECK_STR(ran.out, "");
    CHECK(!exists(made));
}

TEST(operators_make_no_store_where_there_is_none) {
    const char *url;

    harness_folder();
    url = getenv("IDEM_STORE");
    no_store_check(RUN("list"), url, "store");
    no_store_check(RUN("stats"), url, "store");
    no_store_check(RUN("show", "k"), url, "store");
    no_store_check(RUN("settle", "--done", "k"), url, "store");
    no_store_check(RUN("settle", "--state", "uncertain", "--done", "--yes"), url, "store");
    no_store_check(RUN("forget", "k"), url, "store");
    /* Nor in an existing directory without a store. */
    CHECK(mkdir(in_folder("store"), 0700) == 0);
    no_store_check(RUN("list"), url, "store/data.mdb");
    no_store_check(RUN("list"), url, "store/idem.lock");
    CHECK_INT(RUN_SH("k", ":").status, 0);
    CHECK_INT(RUN("list").status, 0);
}

TEST(operators_find_a_store_whose_url_has_options) {
    const char *plain = temp_url("off", "sync=off"), *bare = temp_url("off", "");
    const char *made = temp_url("made", "create=yes&sync=off");

    no_store_check(RUN("list", "--store", plain), plain, "off");
    no_store_check(RUN("list", "--store", bare), bare, "off");
    CHECK_INT(RUN_SH("k", ":", "--store", plain).status, 0);
    CHECK_INT(RUN("show", "k", "--store", plain).status, 0);
    /* An explicit create=yes is obeyed. */
    CHECK_INT(RUN("list", "--store", made).status, 0);
    CHECK(exists("made/data.mdb"));
}

static void default_store_check(void) {
    struct stat stat_;
    struct ran ran;

    unsetenv("IDEM_STORE");
    setenv("XDG_STATE_HOME", in_folder("deep/er"), 1);
    no_store_check(RUN("list"), script("lmdb:%s", in_folder("deep/er/idem")), "deep");
    ran = RUN_SH("k", "echo out");
    CHECK_STR(ran.err, "");
    CHECK_STR(ran.out, "out\n");
    CHECK(exists("deep/er/idem/data.mdb"));
    CHECK(stat(in_folder("deep"), &stat_) == 0);
    CHECK_INT(stat_.st_mode & 0777, 0700);
    unsetenv("XDG_STATE_HOME");
    setenv("HOME", in_folder("home"), 1);
    RUN_SH("k", "echo out");
    CHECK(exists("home/.local/state/idem/data.mdb"));
}

/* As another user than root, whose default is the system's; in a process of its own, so that the
 * directory can be removed afterwards. */
TEST(the_default_store_is_in_the_users_own_folder) {
    int status;
    pid_t pid;

    harness_folder();
    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        temp_owner = getpid(); /* so that it uses the parent's directory */
        if (geteuid() == 0) {
            CHECK(chmod(temp_path, 0777) == 0);
            CHECK(setgid(65534) == 0 && setuid(65534) == 0);
        }
        /* In a build directory with files that only root may read, the test proves nothing. */
        if (access(harness_exe(), X_OK) == 0 &&
            access(getenv("IDEM_LEASE_CLOCK_LIBRARY"), R_OK) == 0)
            default_store_check();
        fflush(NULL);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
}

/* The files of a store contain neither text, and only their owner may read them. */
static void store_files_check(const char *key, const char *scope) {
    DIR *folder = opendir(in_folder("store"));
    struct dirent *entry;
    struct stat file;
    char path[512];
    int n = 0;

    CHECK(folder != NULL && fstat(dirfd(folder), &file) == 0);
    CHECK_INT(file.st_mode & 077, 0);
    while ((entry = readdir(folder)) != NULL) {
        snprintf(path, sizeof(path), "store/%.200s", entry->d_name);
        CHECK(fstatat(dirfd(folder), entry->d_name, &file, AT_SYMLINK_NOFOLLOW) == 0);
        if (!S_ISREG(file.st_mode))
            continue;
        CHECK_INT(file.st_mode & 077, 0);
        CHECK(!file_has(in_folder(path), key) && !file_has(in_folder(path), scope));
        n++;
    }
    closedir(folder);
    CHECK(n >= 2);
}

TEST(a_store_has_neither_keys_nor_scopes_and_is_its_owners_alone) {
    CHECK_INT(RUN_SH("canarykey", "echo canaryresult", "--scope", "canaryuser").status, 0);
    store_files_check("canarykey", "canaryuser");
    /* The search works: a result, which is stored as it is, is found. */
    CHECK(file_has(in_folder("store/data.mdb"), "canaryresult"));
}

/* Usage. */

static void usage_check(struct ran ran, const char *hint) {
    if (ran.status != 64 || strstr(ran.err, hint) == NULL)
        fprintf(stderr, "# %d: %s", ran.status, ran.err);
    CHECK_INT(ran.status, 64);
    CHECK_HAS(ran.err, hint);
    CHECK_STR(ran.out, "");
    CHECK(strstr(ran.err, "secret") == NULL);
}

TEST(a_usage_error_exits_with_64_and_says_what_to_write) {
    harness_folder();
    usage_check(RUN("run", "--", "true"), "--key KEY is missing");
    usage_check(RUN("run", "--key", "", "--", "true"), "--key is empty");
    usage_check(RUN("run", "--key", "secret"), "the command is missing");
    usage_check(RUN("run", "--kee=secret", "--", "true"), "did you mean --key?");
    usage_check(RUN("run", "--key", "k", "--on-failrue", "keep", "true"), "--on-failure?");
    usage_check(RUN("run", "--key"), "--key: its value is missing");
    usage_check(RUN("run", "--quiet=secret", "--key", "k", "true"), "--quiet: it takes no value");
    usage_check(RUN("run", "-X", "--key", "k", "true"), "unknown flag");
    usage_check(RUN("run", "--key", "k", "--mode", "often", "true"), "lock, reject, replay");
    usage_check(RUN("run", "--key", "k", "--lease", "30", "true"), "has no unit");
    usage_check(RUN("run", "--key", "k", "--at", "1h+2h", "true"), "--at: the offset");
    usage_check(RUN("run", "--key", "k", "--at", "7d", "--ttl", "24h", "true"),
                "ttl is 24h, and the step of --at is 7d: ");
    usage_check(RUN("run", "--key", "k", "--at", "60d", "--hold-ttl", "30d", "true"),
                "hold_ttl is 30d, and the step of --at is 60d: ");
    usage_check(RUN("run", "--key", "k", "--verdict-fd", "77", "true"), "not open");
    usage_check(RUN("run", "--key", "k", "--duplicate-exit", "256", "true"), "0 to 255");
    usage_check(RUN("run", "--key", "k", "--mode", "lock", "--recover", "hold", "true"),
                "mode=lock");
    usage_check(RUN("rnu"), "did you mean run?");
    usage_check(RUN("list", "secret"), "no operand");
    usage_check(RUN("settle", "secret"), "--done or --failed");
    usage_check(RUN("settle", "--done", "--failed", "secret"), "not both");
    usage_check(RUN("settle", "--done", "--state", "done"), "forget it");
    usage_check(RUN("settle", "--done", "--state", "damaged"), "forget --force");
    usage_check(RUN("settle", "--done", "--state", "newer"), "that version");
}

/* Some words are checked only if there is a store. */
TEST(a_usage_error_beside_a_store_exits_with_64_as_well) {
    RUN_SH("k", ":");
    usage_check(RUN("show"), "name one record");
    usage_check(RUN("show", "a", "b"), "name one record");
    usage_check(RUN("show", "--hash", "xyz"), "hex digits");
    usage_check(RUN("list", "--state", "gone"), "uncertain");
    usage_check(RUN("list", "--since", "yesterday"), "2h (ago)");
    usage_check(RUN("settle", "--done"), "name one record");
}

TEST(a_verdict_that_could_not_be_written_is_refused_before_anything_runs) {
    char *sh = script("echo x >> %s", in_folder("runs"));
    int fds[2], read_only = open("/dev/null", O_RDONLY), path = open("/dev/null", O_PATH);

    CHECK(pipe(fds) == 0);
    CHECK(read_only >= 0 && path >= 0);
    for (int i = 0; i < 3; i++) {
        const int fd[] = {read_only, path, fds[0]};
        const char *n = script("%d", fd[i]);

        usage_check(RUN("run", "--key", "k", "--verdict-fd", n, "--", "sh", "-c", sh),
                    "--verdict-fd cannot be written to");
    }
    CHECK_INT(lines_of("runs"), 0);
    CHECK_INT(
        RUN("run", "--key", "k", "--verdict-fd", script("%d", fds[1]), "--", "sh", "-c", sh).status,
        0);
    CHECK_INT(lines_of("runs"), 1);
}

TEST(a_key_that_is_too_long_is_refused_without_being_shown) {
    char key[5001];
    struct ran ran;

    memset(key, 's', 5000);
    key[5000] = '\0';
    ran = RUN_SH(key, ":");
    CHECK_INT(ran.status, 64);
    CHECK_HAS(ran.err, "4096");
    CHECK(strstr(ran.err, "ssss") == NULL);
}

TEST(what_fails_before_there_is_a_claim_is_told_to_scripts_as_well) {
    struct ran ran = RUN_SH("k", ":", "--store", "lmdb:/nowhere/at/all");

    CHECK_INT(ran.status, 69);
    CHECK_STR(ran.verdict, "error code=refused\n");
    ran = RUN_SH("k", ":", "--at", "7d", "--ttl", "1h");
    CHECK_INT(ran.status, 64);
    CHECK_STR(ran.verdict, "error code=invalid\n");
}

/* A server that refuses the password only after the test has read the command's arguments. */
TEST(a_password_in_the_stores_url_is_hidden_from_lists_of_processes) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd, conn;
    const char refusal[] = "-WRONGPASS invalid username-password pair\r\n";
    char url[128], path[64], line[4096];
    struct proc proc;
    struct ran ran;
    ssize_t n;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
          listen(listener, 5) == 0 &&
          getsockname(listener, (struct sockaddr *)&address, &size) == 0);
    snprintf(url, sizeof(url), "redis://joe:secret@127.0.0.1:%d?timeout=10m&connect_timeout=10m",
             ntohs(address.sin_port));
    proc = START("show", "k", "--store", url);
    conn = accept(listener, NULL, NULL);
    CHECK(conn >= 0);
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)proc.pid);
    fd = open(path, O_RDONLY);
    n = read(fd, line, sizeof(line) - 1);
    CHECK(n > 0);
    for (ssize_t i = 0; i < n; i++)
        line[i] = line[i] == '\0' ? ' ' : line[i];
    line[n] = '\0';
    close(fd);
    CHECK(strstr(line, "secret") == NULL && strstr(line, "joe") == NULL);
    CHECK_HAS(line, "redis://xxxxxxxxxx@127.0.0.1:");
    CHECK(read(conn, line, sizeof(line)) >
          0); /* AUTH: an earlier response would break the protocol */
    CHECK(write(conn, refusal, strlen(refusal)) == (ssize_t)strlen(refusal));
    ran = proc_wait(&proc);
    CHECK_INT(ran.status, 69);
    CHECK_HAS(ran.err, "the server refuses the user or the password");
    CHECK(strstr(ran.err, "secret") == NULL);
    close(conn);
    close(listener);
}

TEST(idem_without_arguments_shows_an_example) {
    const char *none[] = {NULL};
    struct ran ran = run_argv(none);

    CHECK_INT(ran.status, 64);
    CHECK_HAS(ran.err, "idem run --key");
    CHECK_INT(RUN("--help").status, 0);
    CHECK_INT(RUN("help").status, 0);
    CHECK_HAS(RUN("help", "run").out, "--on-failure");
    CHECK_HAS(RUN("settle", "--help").out, "--dry-run");
    CHECK(starts_with(RUN("--version").out, "idem "));
}

TEST_MAIN
