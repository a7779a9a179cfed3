/*
 * Root finds a directory name by name, so that no link of another
 * user leads it elsewhere.
 *
 * Each name is opened in the directory before it, without following it (O_PATH
 * | O_NOFOLLOW), and a link is read from the descriptor that was opened: the
 * object that was checked is the object that is used, however fast names are
 * swapped. A link must belong to root, or to the owner of the directory that
 * the walk ends at: that user leads root only to its own directory. A link of a
 * third user is refused anywhere in the path.
 *
 * A missing directory is created below the descriptor. It is root's, so every
 * link before it must be root's as well.
 */
#include "base/path_walk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKS_MAX 40 /* the kernel's limit */

struct path_walk {
    const char *path; /* as given */
    int fd;           /* the current directory: O_PATH */
    char rest[PATH_MAX];
    unsigned links;
    bool foreign; /* a link of another user was followed: */
    uid_t link_uid;
    char link[NAME_MAX + 1];
};

int idem_path_make_fail(const char *path, int code, struct idem_error *err) {
    return idem_error_set(err, code == ENOSPC ? IDEM_E_FULL : IDEM_E_REFUSED,
                          "cannot make the store's directory %s: %s%s", path, strerror(code),
                          code == ENOENT ? "; make the directory above it first" : "");
}

int idem_path_open_fail(const char *path, int code, struct idem_error *err) {
    return idem_error_set(err, IDEM_E_REFUSED, "cannot open the store's directory %s: %s", path,
                          strerror(code));
}

static int path_walk_refuse_link(const struct path_walk *walk, struct idem_error *err) {
    return idem_error_set(err, IDEM_E_REFUSED,
                          "%s leads through %s, a link of uid %lu, and root follows only links of "
                          "root and of the directory's owner; name the store's directory itself",
                          walk->path, walk->link, (unsigned long)walk->link_uid);
}

static void path_walk_replace_fd(struct path_walk *walk, int fd) {
    close(walk->fd);
    walk->fd = fd;
}

/* Moves the next name from `rest` to *ret; false if none is left. */
static bool path_walk_take_name(struct path_walk *walk, char ret[NAME_MAX + 1], int *ret_code) {
    size_t begin = strspn(walk->rest, "/"), len = strcspn(walk->rest + begin, "/"), end;

    *ret_code = len > NAME_MAX ? ENAMETOOLONG : 0;
    if (len == 0 || len > NAME_MAX)
        return false;
    memcpy(ret, walk->rest + begin, len);
    ret[len] = '\0';
    end = begin + len;
    end += strspn(walk->rest + end, "/");
    memmove(walk->rest, walk->rest + end, strlen(walk->rest + end) + 1);
    return true;
}

/* Puts the link's text before the remaining path. An absolute link restarts the walk at /. */
static int path_walk_follow_link(struct path_walk *walk, int link) {
    char text[PATH_MAX];
    ssize_t n = readlinkat(link, "", text, sizeof(text));
    size_t rest = strlen(walk->rest);
    int root;

    if (n < 0)
        return errno;
    if (++walk->links > LINKS_MAX)
        return ELOOP;
    if ((size_t)n + 1 + rest >= sizeof(walk->rest))
        return ENAMETOOLONG;
    memmove(walk->rest + n + 1, walk->rest, rest + 1);
    memcpy(walk->rest, text, (size_t)n);
    walk->rest[n] = '/';
    if (text[0] != '/')
        return 0;
    root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return errno;
    path_walk_replace_fd(walk, root);
    return 0;
}

/* False if links of two users other than root were met: the directory cannot belong to both. */
static bool path_walk_note_link(struct path_walk *walk, const char *name, uid_t uid) {
    bool second = uid != 0 && walk->foreign && walk->link_uid != uid;

    if (uid != 0) {
        walk->foreign = true;
        walk->link_uid = uid;
        memcpy(walk->link, name, strlen(name) + 1);
    }
    return !second;
}

static int path_walk_open_name(struct path_walk *walk, const char *name, bool create, int *ret_fd,
                               struct idem_error *err) {
    *ret_fd = openat(walk->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (*ret_fd >= 0 || errno != ENOENT)
        return *ret_fd >= 0 ? 0 : idem_path_open_fail(walk->path, errno, err);
    if (!create)
        return idem_error_set(err, IDEM_E_ABSENT, "there is no store at %s", walk->path);
    if (walk->rest[0] != '\0')
        return idem_path_make_fail(walk->path, ENOENT, err);
    if (walk->foreign)
        return path_walk_refuse_link(walk, err);
    if (mkdirat(walk->fd, name, 0700) < 0 && errno != EEXIST)
        return idem_path_make_fail(walk->path, errno, err);
    *ret_fd = openat(walk->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return *ret_fd >= 0 ? 0 : idem_path_open_fail(walk->path, errno, err);
}

static int path_walk_step(struct path_walk *walk, const char *name, bool create,
                          struct idem_error *err) {
    struct stat st;
    int fd, code, rc = path_walk_open_name(walk, name, create, &fd, err);

    if (rc != 0)
        return rc;
    if (fstat(fd, &st) < 0) {
        code = errno;
        close(fd);
        return idem_path_open_fail(walk->path, code, err);
    }
    if (!S_ISLNK(st.st_mode)) {
        path_walk_replace_fd(walk, fd);
        return 0;
    }
    if (!path_walk_note_link(walk, name, st.st_uid)) {
        close(fd);
        return path_walk_refuse_link(walk, err);
    }
    code = path_walk_follow_link(walk, fd);
    close(fd);
    return code == 0 ? 0 : idem_path_open_fail(walk->path, code, err);
}

static int path_walk_end(const struct path_walk *walk, int *ret_fd, struct idem_error *err) {
    struct stat st;

    if (fstat(walk->fd, &st) < 0)
        return idem_path_open_fail(walk->path, errno, err);
    if (walk->foreign && walk->link_uid != st.st_uid)
        return path_walk_refuse_link(walk, err);
    if (!S_ISDIR(st.st_mode))
        return idem_path_open_fail(walk->path, ENOTDIR, err);
    *ret_fd = openat(walk->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret_fd >= 0 ? 0 : idem_path_open_fail(walk->path, errno, err);
}

int idem_path_walk(const char *path, bool create, int *ret_fd, struct idem_error *err) {
    struct path_walk walk = {.path = path};
    char name[NAME_MAX + 1];
    int code, rc = 0;

    if (strlen(path) >= sizeof(walk.rest))
        return idem_path_open_fail(path, ENAMETOOLONG, err);
    memcpy(walk.rest, path, strlen(path) + 1);
    walk.fd = open(path[0] == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (walk.fd < 0)
        return idem_path_open_fail(path, errno, err);
    while (rc == 0 && path_walk_take_name(&walk, name, &code))
        rc = path_walk_step(&walk, name, create, err);
    if (rc == 0 && code != 0)
        rc = idem_path_open_fail(path, code, err);
    if (rc == 0)
        rc = path_walk_end(&walk, ret_fd, err);
    close(walk.fd);
    return rc;
}
