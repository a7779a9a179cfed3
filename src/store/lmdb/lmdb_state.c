/*
 * The small files beside the data: `idem.lock` shows which processes have the
 * store open; `idem.state` records how it was opened and since which boot. They
 * are apart because after an unclean power-off with sync=off the data itself
 * cannot be trusted.
 *
 * Fails if the directory cannot be written or the state file is not a store's;
 * the error names the file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/units.h"
#include "store/lmdb/lmdb_directory.h"

#define STATE_FILE "idem.state"
#define STATE_TEMP "idem.state.new"
#define STATE_FORMAT "1"

#define TIME_NS_FIRST 0xeffffffau /* the machine's own time namespace */
#define WAIT_STEP_MS 10

/* Bytes of idem.lock. The locks belong to the descriptor, not to the process, and end with it. */
enum {
    LOCK_DOOR, /* held while a process opens or closes */
    LOCK_USE,  /* shared by all that have the store open */
    LOCK_LENGTH,
    LOCK_CLOCK,
    LOCK_SLOT = 16
};

static int state_lock_byte(int fd, short type, off_t byte) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

    return fcntl(fd, F_OFD_SETLK, &lock);
}

/* The wait is bounded: the process that holds the lock may be stopped. */
static int state_wait_for_lock(int fd, off_t byte, int wait_ms, int step_ms) {
    struct timespec step = {.tv_nsec = step_ms * 1000000L};
    int rc = state_lock_byte(fd, F_WRLCK, byte);

    for (int ms = 0; rc < 0 && (errno == EAGAIN || errno == EACCES) && ms < wait_ms;
         ms += step_ms) {
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &step, NULL);
        rc = state_lock_byte(fd, F_WRLCK, byte);
    }
    return rc;
}

static int state_lock_door(int fd) {
    return state_wait_for_lock(fd, LOCK_DOOR, lmdb_patience.door * 1000, WAIT_STEP_MS);
}

int lmdb_lock_length(struct lmdb_env *env) {
    return state_wait_for_lock(env->lock_fd, LOCK_LENGTH, lmdb_patience.length * 1000, 1);
}

void lmdb_unlock_length(struct lmdb_env *env) {
    (void)state_lock_byte(env->lock_fd, F_UNLCK, LOCK_LENGTH);
}

int lmdb_lock_clock(struct lmdb_env *env) {
    return state_wait_for_lock(env->lock_fd, LOCK_CLOCK, lmdb_patience.length * 1000, 1);
}

void lmdb_unlock_clock(struct lmdb_env *env) {
    (void)state_lock_byte(env->lock_fd, F_UNLCK, LOCK_CLOCK);
}

int lmdb_lock_open(struct lmdb_env *env, bool *ret_alone, struct idem_error *err) {
    struct stat st;
    bool alone;
    int rc;

    lmdb_registry_lock(); /* so that every forked child knows the descriptor */
    rc = lmdb_directory_open_file(env, LMDB_LOCK_FILE, O_RDWR | O_CREAT, &env->lock_fd, &st, err);
    lmdb_registry_unlock();
    if (rc != 0)
        return rc;
    env->door_file = (struct lmdb_file){st.st_dev, st.st_ino};
    if (state_lock_door(env->lock_fd) < 0)
        goto failed;
    alone = state_lock_byte(env->lock_fd, F_WRLCK, LOCK_USE) == 0;
    if (state_lock_byte(env->lock_fd, F_RDLCK, LOCK_USE) < 0)
        goto failed;
    *ret_alone = alone;
    return 0;

failed:
    if (errno == EAGAIN || errno == EACCES)
        return idem_error_set(err, IDEM_E_REFUSED,
                              "%s: another process has been opening or closing the store for more "
                              "than %d s; it may be stopped (`lsof %s/%s` names it)",
                              env->config.path, lmdb_patience.door, env->config.path,
                              LMDB_LOCK_FILE);
    return idem_error_set(err, IDEM_E_REFUSED,
                          "cannot lock %s/%s: %s; the store needs a local "
                          "file system with locks",
                          env->config.path, LMDB_LOCK_FILE, strerror(errno));
}

void lmdb_lock_opened(struct lmdb_env *env) {
    (void)state_lock_byte(env->lock_fd, F_UNLCK, LOCK_DOOR);
}

/* Unlocked explicitly: close() is not enough if a forked child has the same file open. */
void lmdb_lock_close(struct lmdb_env *env) {
    if (env->lock_fd < 0)
        return;
    (void)state_lock_byte(env->lock_fd, F_UNLCK, LOCK_DOOR);
    (void)state_lock_byte(env->lock_fd, F_UNLCK, LOCK_USE);
    (void)state_lock_byte(env->lock_fd, F_UNLCK, LOCK_LENGTH);
    (void)state_lock_byte(env->lock_fd, F_UNLCK, LOCK_CLOCK);
    close(env->lock_fd);
    env->lock_fd = -1;
}

bool lmdb_lock_leave(struct lmdb_env *env) {
    return state_lock_door(env->lock_fd) == 0 &&
           state_lock_byte(env->lock_fd, F_WRLCK, LOCK_USE) == 0;
}

bool lmdb_lock_slot(struct lmdb_env *env, int slot) {
    return state_lock_byte(env->lock_fd, F_WRLCK, LOCK_SLOT + slot) == 0;
}

void lmdb_unlock_slot(struct lmdb_env *env, int slot) {
    (void)state_lock_byte(env->lock_fd, F_UNLCK, LOCK_SLOT + slot);
}

int lmdb_boot_id(char out[LMDB_BOOT_LEN + 1], struct idem_error *err) {
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, LMDB_BOOT_LEN);

    if (fd >= 0)
        close(fd);
    if (n != LMDB_BOOT_LEN)
        return idem_error_set(err, IDEM_E_REFUSED,
                              "cannot read %s (%s): leases cannot be judged without the boot id",
                              path, fd < 0 ? strerror(errno) : "too short");
    out[LMDB_BOOT_LEN] = '\0';
    return 0;
}

/* Each time namespace has its own CLOCK_BOOTTIME, and a number, which replaces the first digits
   of the boot id. */
int lmdb_clock_id(char out[LMDB_BOOT_LEN + 1], struct idem_error *err) {
    char digits[9];
    struct stat st;
    int rc = lmdb_boot_id(out, err);

    if (rc != 0 || stat("/proc/self/ns/time", &st) < 0 || st.st_ino == TIME_NS_FIRST)
        return rc;
    snprintf(digits, sizeof(digits), "%08x", (unsigned)st.st_ino);
    memcpy(out, digits, 8);
    return 0;
}

/* Returns the rest of a line that begins with `name`, NULL if the line begins otherwise. *text
   moves to the next line in both cases. */
static char *state_take_line(char **text, const char *name) {
    char *line = strsep(text, "\n");

    return line != NULL && idem_text_begins(line, name) ? line + strlen(name) : NULL;
}

static int state_damaged(const struct lmdb_env *env, struct idem_error *err) {
    return idem_error_set(err, IDEM_E_CORRUPT,
                          "%s/%s is damaged; if the data beside it is known "
                          "to be good, remove that file",
                          env->config.path, STATE_FILE);
}

int lmdb_state_parse(const struct lmdb_env *env, char *text, struct lmdb_state *ret,
                     struct idem_error *err) {
    char *format = state_take_line(&text, "idem-store "), *sync, *clean, *boot, *data, *mtime;
    struct lmdb_state state = {0};

    if (format == NULL || strspn(format, "0123456789") != strlen(format) || format[0] == '\0')
        return state_damaged(env, err);
    if (strcmp(format, STATE_FORMAT) != 0)
        return idem_error_set(err, IDEM_E_VERSION,
                              "%s/%s: the store was made by a newer version "
                              "of Idem (format %.8s, this one reads " STATE_FORMAT ")",
                              env->config.path, STATE_FILE, format);
    sync = state_take_line(&text, "sync ");
    clean = state_take_line(&text, "clean ");
    boot = state_take_line(&text, "boot ");
    data = state_take_line(&text, "data ");
    mtime = data == NULL ? NULL : strchr(data, ' ');
    if (sync == NULL || clean == NULL || boot == NULL || mtime == NULL ||
        strlen(boot) != LMDB_BOOT_LEN ||
        (strcmp(sync, "off") != 0 && strcmp(sync, "always") != 0) ||
        (strcmp(clean, "yes") != 0 && strcmp(clean, "no") != 0))
        return state_damaged(env, err);
    if (idem_count_parse(data, (size_t)(mtime - data), &state.size, NULL) != 0 ||
        idem_count_parse(mtime + 1, strlen(mtime + 1), &state.mtime_ns, NULL) != 0)
        return state_damaged(env, err);
    state.sync = strcmp(sync, "off") == 0 ? LMDB_SYNC_OFF : LMDB_SYNC_ALWAYS;
    state.clean = strcmp(clean, "yes") == 0;
    memcpy(state.boot, boot, LMDB_BOOT_LEN);
    *ret = state;
    return 0;
}

int lmdb_state_read(struct lmdb_env *env, struct lmdb_state *ret, bool *ret_found,
                    struct idem_error *err) {
    char text[256];
    struct stat st;
    ssize_t n;
    int fd = -1, rc = lmdb_directory_open_file(env, STATE_FILE, O_RDONLY, &fd, &st, err);

    if (rc != 0)
        return rc;
    if (fd < 0) {
        *ret_found = false;
        return 0;
    }
    n = read(fd, text, sizeof(text) - 1);
    if (n < 0)
        idem_error_set(err, IDEM_E_REFUSED, "cannot read %s/%s: %s", env->config.path, STATE_FILE,
                       strerror(errno));
    close(fd);
    if (n < 0)
        return IDEM_E_REFUSED;
    text[n] = '\0';
    *ret_found = true;
    return lmdb_state_parse(env, text, ret, err);
}

static bool state_stat_data(const struct lmdb_env *env, int64_t *size, int64_t *mtime_ns) {
    struct stat st;

    if (fstatat(env->dir_fd, "data.mdb", &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    *size = st.st_size;
    *mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return true;
}

bool lmdb_state_fits(const struct lmdb_env *env, const struct lmdb_state *state) {
    int64_t size, mtime_ns;

    return state->clean && state_stat_data(env, &size, &mtime_ns) && size == state->size &&
           mtime_ns == state->mtime_ns;
}

void lmdb_state_note(const struct lmdb_env *env, struct lmdb_state *state) {
    if (!state_stat_data(env, &state->size, &state->mtime_ns))
        state->size = state->mtime_ns = 0;
}

/* Always a new file, so that no link is followed. */
static int state_open_temporary(const struct lmdb_env *env) {
    (void)unlinkat(env->dir_fd, STATE_TEMP, 0);
    return openat(env->dir_fd, STATE_TEMP, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

/* The file is durable before it takes effect: written under another name, synced, renamed, and
   the directory synced. */
int lmdb_state_write(struct lmdb_env *env, const struct lmdb_state *state, struct idem_error *err) {
    char text[256];
    int len = snprintf(text, sizeof(text),
                       "idem-store " STATE_FORMAT "\nsync %s\nclean %s\nboot %s\ndata %lld %lld\n",
                       state->sync == LMDB_SYNC_OFF ? "off" : "always", state->clean ? "yes" : "no",
                       state->boot, (long long)state->size, (long long)state->mtime_ns);
    int fd = state_open_temporary(env);
    bool ok = fd >= 0 && write(fd, text, (size_t)len) == len && fsync(fd) == 0;
    int saved = errno;

    if (fd >= 0)
        close(fd);
    if (ok) {
        ok = renameat(env->dir_fd, STATE_TEMP, env->dir_fd, STATE_FILE) == 0 &&
             fsync(env->dir_fd) == 0;
        saved = errno;
    }
    if (ok)
        return 0;
    (void)unlinkat(env->dir_fd, STATE_TEMP, 0);
    return idem_error_set(err, saved == ENOSPC || saved == EDQUOT ? IDEM_E_FULL : IDEM_E_REFUSED,
                          "cannot write %s/%s: %s", env->config.path, STATE_FILE, strerror(saved));
}
