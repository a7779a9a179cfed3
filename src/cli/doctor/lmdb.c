/*
 * The folder of an embedded store: where it lies, who may touch it, and how much room it has. Never
 * makes one.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/doctor/doctor.h"
#include "core/units.h"

#define SIZE_DEFAULT ((int64_t)16 << 30)
#define ROOM_LEAST ((int64_t)64 << 20)

/* Its file; false: there is none. */
static bool data_stat(const char *folder, struct stat *ret) {
    int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool there = fd >= 0 && fstatat(fd, "data.mdb", ret, 0) == 0;

    if (fd >= 0)
        close(fd);
    return there;
}

/* Whether whoever runs this may use the folder and the files in it; else errno. */
static bool may_use(const char *folder) {
    static const char *const files[] = {"data.mdb", "lock.mdb", "idem.lock", "idem.shared",
                                        "idem.state"};
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool may = fd >= 0 && access(folder, R_OK | W_OK | X_OK) == 0;

    for (size_t i = 0; may && i < sizeof(files) / sizeof(files[0]); i++)
        may = faccessat(fd, files[i], R_OK | W_OK, 0) == 0 || errno == ENOENT;
    if (fd >= 0)
        close(fd);
    return may;
}

static bool may_make(const char *folder) {
    return access(folder, W_OK | X_OK) == 0;
}

/* The same for the user who will use it: root may everything, so that a process looks that has
   become the workers' user. */
static bool user_may(const struct doctor *d, bool (*may)(const char *folder), const char *folder) {
    const struct doctor_user *user = d->user;
    int status = 0;
    pid_t pid;

    if (user == NULL)
        return may(folder);
    pid = fork();
    if (pid == 0)
        _exit(initgroups(user->name, user->gid) == 0 && setgid(user->gid) == 0 &&
                      setuid(user->uid) == 0 && may(folder)
                  ? 0
                  : errno);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (pid > 0)
        errno = WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
    return pid > 0 && errno == 0;
}

/* File systems that will not do. Numbers as in statfs(2). */

static const char far[] = "is a network's or another program's: LMDB maps the file and locks it, "
                          "which holds on a local disk only",
                  fleeting[] = "is memory: what was done is forgotten when the machine restarts, "
                               "and runs again",
                  layered[] = "is a container's own layer: what was done is forgotten when the "
                              "container is replaced, and runs again";
static const char to_disk[] = "put it on a local disk, or use Redis or SQL",
                  to_volume[] = "mount a volume for it";

static const struct {
    unsigned long type;
    const char *name, *why, *todo;
} systems[] = {
    {0x6969, "NFS", far, to_disk},
    {0x517b, "SMB", far, to_disk},
    {0xff534d42, "CIFS", far, to_disk},
    {0xfe534d42, "SMB2", far, to_disk},
    {0x01021997, "9p", far, to_disk},
    {0x65735546, "FUSE", far, to_disk},
    {0x5346414f, "AFS", far, to_disk},
    {0x6b414653, "AFS", far, to_disk},
    {0x00c36400, "Ceph", far, to_disk},
    {0x01161970, "GFS2", far, to_disk},
    {0x7461636f, "OCFS2", far, to_disk},
    {0x0bd00bd0, "Lustre", far, to_disk},
    {0x47504653, "GPFS", far, to_disk},
    {0x786f4256, "vboxsf", far, to_disk},
    {0x01021994, "tmpfs", fleeting, to_disk},
    {0x858458f6, "ramfs", fleeting, to_disk},
    {0x794c7630, "overlayfs", layered, to_volume},
};

static void system_look(struct doctor *d, const char *subject, const char *path) {
    struct statfs fs;

    if (statfs(path, &fs) < 0) {
        doctor_find(d, DOCTOR_NOTE, subject, "file system", NULL, "cannot be told: %s",
                    strerror(errno));
        return;
    }
    for (size_t i = 0; i < sizeof(systems) / sizeof(systems[0]); i++) {
        if (((unsigned long)fs.f_type & 0xffffffff) != systems[i].type)
            continue;
        doctor_find(d, DOCTOR_UNSAFE, subject, "file system", systems[i].todo, "%s %s",
                    systems[i].name, systems[i].why);
        return;
    }
    doctor_find(d, DOCTOR_OK, subject, "file system", NULL, "a local disk");
}

/* Who may touch it. */

/* Whether a group may do something with the folder or the file in it, and which. */
static bool group_may(const char *path, const struct stat *folder, gid_t *ret) {
    struct stat st;

    *ret = folder->st_gid;
    if ((folder->st_mode & (S_IWGRP | S_IXGRP)) == (S_IWGRP | S_IXGRP))
        return true;
    if (!data_stat(path, &st) || (st.st_mode & S_IRWXG) == 0 ||
        (folder->st_mode & (S_IXGRP | S_IXOTH)) == 0)
        return false;
    *ret = st.st_gid;
    return true;
}

static void refusal_tell(struct doctor *d, const char *subject, const struct stat *folder) {
    char todo[128];

    if (d->user == NULL) {
        doctor_find(
            d, DOCTOR_BROKEN, subject, "permissions",
            "run this as the user whose store it is (sudo -u www-data idem doctor), or give "
            "it to that user",
            "uid %ld may not use it; it belongs to uid %ld", (long)geteuid(), (long)folder->st_uid);
        return;
    }
    snprintf(todo, sizeof(todo), "give it to them with all that is in it: chown -R %s",
             d->user->name);
    doctor_find(d, DOCTOR_BROKEN, subject, "permissions", todo,
                "nginx's workers run as %s and may not use it, or not a file in it; it belongs to "
                "uid %ld: guarded requests get 503",
                d->user->name, (long)folder->st_uid);
}

static bool owner_look(struct doctor *d, const char *subject, const char *path,
                       const struct stat *folder) {
    struct stat st;
    gid_t gid;

    if (!user_may(d, may_use, path)) {
        refusal_tell(d, subject, folder);
        return false;
    }
    if ((folder->st_mode & S_IWOTH) != 0)
        doctor_find(d, DOCTOR_UNSAFE, subject, "owner", "chmod 700 the folder",
                    "everybody may write to its folder (mode %03o), and replace the store",
                    (unsigned)folder->st_mode & 0777);
    else if (data_stat(path, &st) && (st.st_mode & 07) != 0 && (folder->st_mode & S_IXOTH) != 0)
        doctor_find(d, DOCTOR_UNSAFE, subject, "owner", "chmod 600 data.mdb, chmod 700 the folder",
                    "everybody may read data.mdb (mode %03o), with the stored answers",
                    (unsigned)st.st_mode & 0777);
    else if (group_may(path, folder, &gid))
        doctor_find(d, DOCTOR_NOTE, subject, "owner",
                    "chmod 600 data.mdb, chmod 700 the folder, unless all of the group are meant",
                    "uid %ld, and the group %ld: each of it may read the stored answers, or change "
                    "the store",
                    (long)folder->st_uid, (long)gid);
    else
        doctor_find(d, DOCTOR_OK, subject, "owner", NULL, "uid %ld, and nobody else",
                    (long)folder->st_uid);
    return true;
}

/* How much room. */

static void room_look(struct doctor *d, const char *subject, const char *path, const char *size) {
    char left[IDEM_UNITS_TEXT], map[IDEM_UNITS_TEXT];
    int64_t most = SIZE_DEFAULT, free_bytes, used = 0;
    struct statvfs fs;
    struct stat st;

    if (size != NULL)
        (void)idem_size_parse(size, strlen(size), &most, NULL);
    if (statvfs(path, &fs) < 0)
        return;
    if (data_stat(path, &st))
        used = (int64_t)st.st_blocks * 512;
    free_bytes = (int64_t)(fs.f_bavail * fs.f_frsize);
    idem_size_print(free_bytes >> 20 << 20, left, sizeof(left));
    idem_size_print(most, map, sizeof(map));
    if (free_bytes < ROOM_LEAST)
        doctor_find(d, DOCTOR_UNSAFE, subject, "room", "make room on the disk",
                    "the disk has %s left: when it is full, new keys are refused, and runs become "
                    "uncertain",
                    left);
    else if (free_bytes < most - used)
        doctor_find(d, DOCTOR_NOTE, subject, "room", "watch the disk, or say a smaller size=",
                    "the disk has %s left, and the store may grow to %s: the disk is full first",
                    left, map);
    else
        doctor_find(d, DOCTOR_OK, subject, "room", NULL, "%s left for a store of at most %s", left,
                    map);
}

/* One machine's memory. */

static void replicas_look(struct doctor *d, const char *subject) {
    bool kubernetes = getenv("KUBERNETES_SERVICE_HOST") != NULL;

    if (!kubernetes && access("/.dockerenv", F_OK) < 0 && access("/run/.containerenv", F_OK) < 0)
        return;
    doctor_find(d, DOCTOR_NOTE, subject, "replicas", "use Redis or SQL, or never run more than one",
                "this is a container%s: the embedded store is one machine's memory, and a second "
                "replica of the gateway would not know what the first has done",
                kubernetes ? " in Kubernetes" : "");
}

static void sync_look(struct doctor *d, const char *subject, const struct idem_url *url) {
    const char *sync = idem_url_get(url, "sync"), *accept = idem_url_get(url, "accept_loss");

    if (sync == NULL || strcmp(sync, "off") != 0)
        doctor_find(d, DOCTOR_OK, subject, "sync", NULL,
                    "what was acknowledged survives a power loss");
    else if (accept != NULL && strcmp(accept, "yes") == 0)
        doctor_find(d, DOCTOR_UNSAFE, subject, "sync",
                    "leave accept_loss=yes out until a loss is to be accepted, or sync=off",
                    "sync=off and accept_loss=yes: after a power loss the store begins empty, and "
                    "what was done runs again");
    else
        doctor_find(d, DOCTOR_NOTE, subject, "sync", "leave sync=off out where that is too much",
                    "sync=off: a power loss may take everything since the store was opened; it is "
                    "noticed, and refused to open without accept_loss=yes");
}

/* accept_clock=yes is for one command, after an operator has checked the clock. */
static void clock_look(struct doctor *d, const char *subject, const struct idem_url *url) {
    const char *accept = idem_url_get(url, "accept_clock");

    if (accept != NULL && strcmp(accept, "yes") == 0)
        doctor_find(d, DOCTOR_UNSAFE, subject, "accept_clock",
                    "leave accept_clock=yes out until a jump of the clock is to be accepted",
                    "accept_clock=yes: whatever the machine's clock says when a process starts is "
                    "taken as right; a wrong one forgets what was done, and it runs again");
}

bool doctor_lmdb(struct doctor *d, const char *subject, const struct idem_url *url) {
    char path[PATH_MAX], above[PATH_MAX];
    struct stat st;
    bool there;

    snprintf(path, sizeof(path), "%s", url->rest);
    snprintf(above, sizeof(above), "%s", url->rest);
    there = stat(path, &st) == 0;
    if (!there && (stat(dirname(above), &st) < 0 || !user_may(d, may_make, above))) {
        doctor_find(d, DOCTOR_BROKEN, subject, "folder",
                    "make the folder above it, for the user who runs the gateway",
                    "neither it nor a folder to make it in is there%s%s: %s",
                    d->user == NULL ? "" : " for ", d->user == NULL ? "" : d->user->name,
                    strerror(errno));
        return false;
    }
    sync_look(d, subject, url);
    clock_look(d, subject, url);
    system_look(d, subject, there ? path : above);
    room_look(d, subject, there ? path : above, idem_url_get(url, "size"));
    replicas_look(d, subject);
    if (there && !owner_look(d, subject, path, &st))
        return false;
    if (there && data_stat(path, &st))
        return true;
    doctor_find(d, DOCTOR_NOTE, subject, "store", NULL,
                "there is none yet; it is made when it is first used");
    return false;
}
