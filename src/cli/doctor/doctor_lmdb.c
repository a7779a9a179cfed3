/*
 * Examines the directory of an embedded store: its file system, its permissions, and its free
 * space. Never creates a store.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/units.h"
#include "cli/doctor/doctor.h"

#define SIZE_DEFAULT ((int64_t)16 << 30)
#define ROOM_LEAST ((int64_t)64 << 20)

/* Examines the data file; false if there is none. */
static bool doctor_lmdb_stat_data(const char *directory, struct stat *ret) {
    int fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool there = fd >= 0 && fstatat(fd, "data.mdb", ret, 0) == 0;

    if (fd >= 0)
        close(fd);
    return there;
}

/* File systems that are unsafe for a store. Numbers as in statfs(2). */

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

static void doctor_lmdb_check_system(struct doctor *d, const char *subject, const char *path) {
    struct statfs fs;

    if (statfs(path, &fs) < 0) {
        doctor_find(d, DOCTOR_NOTE, subject, "file system", NULL, "unknown: %s", strerror(errno));
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

/* Permissions. */

/* True if a group has access to the directory or the file in it; *ret is that group. */
static bool doctor_lmdb_group_may(const char *path, const struct stat *directory, gid_t *ret) {
    struct stat st;

    *ret = directory->st_gid;
    if ((directory->st_mode & (S_IWGRP | S_IXGRP)) == (S_IWGRP | S_IXGRP))
        return true;
    if (!doctor_lmdb_stat_data(path, &st) || (st.st_mode & S_IRWXG) == 0 ||
        (directory->st_mode & (S_IXGRP | S_IXOTH)) == 0)
        return false;
    *ret = st.st_gid;
    return true;
}

static void doctor_lmdb_report_refusal(struct doctor *d, const char *subject, const char *path,
                                       const struct stat *directory) {
    char todo[PATH_MAX + 128];

    if (d->user == NULL) {
        doctor_find(
            d, DOCTOR_BROKEN, subject, "permissions",
            "run this as the user whose store it is (sudo -u www-data idem doctor), or give "
            "it to that user",
            "uid %ld may not use it; it belongs to uid %ld", (long)geteuid(),
            (long)directory->st_uid);
        return;
    }
    snprintf(todo, sizeof(todo), "give it to them with all that is in it: chown -R %s '%s'",
             d->user->name, path);
    doctor_find(d, DOCTOR_BROKEN, subject, "permissions", todo,
                "nginx's workers run as %s and may not use it, or not a file in it; it belongs to "
                "uid %ld: guarded requests get 503",
                d->user->name, (long)directory->st_uid);
}

static void doctor_lmdb_check_owner(struct doctor *d, const char *subject, const char *path,
                                    const struct stat *directory) {
    struct stat st;
    gid_t gid;

    if ((directory->st_mode & S_IWOTH) != 0)
        doctor_find(d, DOCTOR_UNSAFE, subject, "owner", "chmod 700 the directory",
                    "every user may write to its directory (mode %03o), and replace the store",
                    (unsigned)directory->st_mode & 0777);
    else if (doctor_lmdb_stat_data(path, &st) && (st.st_mode & 07) != 0 &&
             (directory->st_mode & S_IXOTH) != 0)
        doctor_find(d, DOCTOR_UNSAFE, subject, "owner",
                    "chmod 600 data.mdb, chmod 700 the directory",
                    "every user may read data.mdb (mode %03o), with the stored responses",
                    (unsigned)st.st_mode & 0777);
    else if (doctor_lmdb_group_may(path, directory, &gid))
        doctor_find(
            d, DOCTOR_NOTE, subject, "owner",
            "chmod 600 data.mdb, chmod 700 the directory, unless all of the group are meant",
            "uid %ld, and the group %ld: each of it may read the stored responses, or change "
            "the store",
            (long)directory->st_uid, (long)gid);
    else
        doctor_find(d, DOCTOR_OK, subject, "owner", NULL, "uid %ld only", (long)directory->st_uid);
}

/* Free space. */

static void doctor_lmdb_check_room(struct doctor *d, const char *subject, const char *path,
                                   const char *size) {
    char left[IDEM_UNITS_TEXT], map[IDEM_UNITS_TEXT];
    int64_t most = SIZE_DEFAULT, free_bytes, used = 0;
    struct statvfs fs;
    struct stat st;

    if (size != NULL)
        (void)idem_size_parse(size, strlen(size), &most, NULL);
    if (statvfs(path, &fs) < 0)
        return;
    if (doctor_lmdb_stat_data(path, &st))
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
        doctor_find(d, DOCTOR_NOTE, subject, "room", "watch the disk, or set a smaller size=",
                    "the disk has %s left, and the store may grow to %s: the disk is full first",
                    left, map);
    else
        doctor_find(d, DOCTOR_OK, subject, "room", NULL, "%s left for a store of at most %s", left,
                    map);
}

/* Replicas: the store is the memory of one machine. */

static void doctor_lmdb_check_replicas(struct doctor *d, const char *subject) {
    bool kubernetes = getenv("KUBERNETES_SERVICE_HOST") != NULL;

    if (!kubernetes && access("/.dockerenv", F_OK) < 0 && access("/run/.containerenv", F_OK) < 0)
        return;
    doctor_find(d, DOCTOR_NOTE, subject, "replicas", "use Redis or SQL, or never run more than one",
                "this is a container%s: the embedded store is one machine's memory, and a second "
                "replica of the gateway would not know what the first has done",
                kubernetes ? " in Kubernetes" : "");
}

static void doctor_lmdb_check_sync(struct doctor *d, const char *subject,
                                   const struct idem_url *url) {
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
static void doctor_lmdb_check_clock(struct doctor *d, const char *subject,
                                    const struct idem_url *url) {
    const char *accept = idem_url_get(url, "accept_clock");

    if (accept != NULL && strcmp(accept, "yes") == 0)
        doctor_find(d, DOCTOR_UNSAFE, subject, "accept_clock",
                    "leave accept_clock=yes out until a jump of the clock is to be accepted",
                    "accept_clock=yes: the machine's clock is trusted when a process starts; with "
                    "a wrong clock, what was done is forgotten and runs again");
}

/* True if the store's user may open it or, in the directory above it, make it; else errno is set.
 */
static bool doctor_lmdb_may_open(const struct doctor *d, const struct idem_url *url) {
    char text[PATH_MAX];

    snprintf(text, sizeof(text), "%s:%s", url->scheme, url->raw);
    return idem_user_may(d->user, idem_store_may_open, text);
}

static void doctor_lmdb_report_unmade(struct doctor *d, const char *subject, const char *path,
                                      const char *above) {
    const char *user = d->user == NULL ? NULL : d->user->name, *why = strerror(errno);
    char remedy[PATH_MAX + 100];

    snprintf(remedy, sizeof(remedy), "install -d%s%s -m 700 '%s'", user == NULL ? "" : " -o ",
             user == NULL ? "" : user, path);
    doctor_find(d, DOCTOR_BROKEN, subject, "folder", remedy, "%s cannot make it in %s: %s",
                user == NULL ? "the user who runs this" : user, above, why);
}

bool doctor_lmdb(struct doctor *d, const char *subject, const struct idem_url *url) {
    char path[PATH_MAX], above[PATH_MAX];
    struct stat st;
    bool there, may;

    snprintf(path, sizeof(path), "%s", url->rest);
    snprintf(above, sizeof(above), "%s", url->rest);
    there = stat(path, &st) == 0;
    if (!there)
        (void)dirname(above);
    may = doctor_lmdb_may_open(d, url);
    if (!there && !may) {
        doctor_lmdb_report_unmade(d, subject, path, above);
        return false;
    }
    doctor_lmdb_check_sync(d, subject, url);
    doctor_lmdb_check_clock(d, subject, url);
    doctor_lmdb_check_system(d, subject, there ? path : above);
    doctor_lmdb_check_room(d, subject, there ? path : above, idem_url_get(url, "size"));
    doctor_lmdb_check_replicas(d, subject);
    if (!may) {
        doctor_lmdb_report_refusal(d, subject, path, &st);
        return false;
    }
    if (there)
        doctor_lmdb_check_owner(d, subject, path, &st);
    if (there && doctor_lmdb_stat_data(path, &st))
        return true;
    doctor_find(d, DOCTOR_NOTE, subject, "store", NULL,
                "there is none yet; it is made when it is first used");
    return false;
}
