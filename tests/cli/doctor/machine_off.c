/*
 * A preload for idem (LD_PRELOAD): simulates another machine's disk.
 * IDEM_FILE_SYSTEM is the type in hex (statfs(2)), IDEM_DISK_LEFT the number of
 * free bytes, IDEM_MARKER a file that exists.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

int statfs(const char *path, struct statfs *ret) {
    int (*real)(const char *, struct statfs *) =
        (int (*)(const char *, struct statfs *))dlsym(RTLD_NEXT, "statfs");
    const char *number = getenv("IDEM_FILE_SYSTEM");
    int rc = real(path, ret);

    if (rc == 0 && number != NULL)
        ret->f_type = (__typeof__(ret->f_type))strtoul(number, NULL, 16);
    return rc;
}

int statvfs(const char *path, struct statvfs *ret) {
    int (*real)(const char *, struct statvfs *) =
        (int (*)(const char *, struct statvfs *))dlsym(RTLD_NEXT, "statvfs");
    const char *left = getenv("IDEM_DISK_LEFT");
    int rc = real(path, ret);

    if (rc == 0 && left != NULL)
        ret->f_bavail = strtoul(left, NULL, 10) / ret->f_frsize;
    return rc;
}

int access(const char *path, int how) {
    int (*real)(const char *, int) = (int (*)(const char *, int))dlsym(RTLD_NEXT, "access");
    const char *there = getenv("IDEM_MARKER");

    return there != NULL && strcmp(path, there) == 0 ? 0 : real(path, how);
}
