/*
 * Checks LMDB's files where LMDB trusts them. LMDB maps the data file and reads
 * past its end, or wherever a damaged page points: that is a SIGBUS or an
 * abort. It also maps its lock file without allocating it.
 */
#include "store/lmdb/lmdb_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/error.h"
#include "store/lmdb/lmdb_directory.h"

/*
 * Verifies the pages of data.mdb, trusting none.
 *
 * LMDB believes its pages: a damaged page makes it abort, or read beyond its
 * map (SIGBUS). So the trees are walked once, when the store is opened and no
 * other process has it open: every page must be as its parent describes it,
 * every node must lie inside its page, keys must ascend, no page may be used
 * twice, and free pages must not be in use. Contents of records are not checked
 * here: they carry their own checksums.
 *
 * The code knows the file format of LMDB 0.9 (data version 1, 64 bits), which
 * does not change; LMDB itself refuses other versions.
 */

#define HEADER 16
#define NODE 8
#define DEPTH_MAX 32
#define ROOT_NONE UINT64_MAX

enum {
    PAGE_BRANCH = 0x01,
    PAGE_LEAF = 0x02,
    PAGE_OVERFLOW = 0x04,
    PAGE_META = 0x08,
    PAGE_KINDS = 0x6f
};
enum { NODE_BIG = 0x01, NODE_SUB = 0x02, NODE_DUP = 0x04 };

struct page {
    uint64_t number;
    uint16_t pad, flags, lower, upper;
};

struct db {
    uint32_t pad;
    uint16_t flags, depth;
    uint64_t branches, leaves, overflows, entries, root;
};

struct meta {
    uint32_t magic, version;
    uint64_t address, mapsize;
    struct db dbs[2]; /* free pages; the tables */
    uint64_t last_page, txnid;
};

_Static_assert(sizeof(struct page) == HEADER && sizeof(struct db) == 48 &&
                   sizeof(struct meta) == 136,
               "as LMDB has them");

struct walk {
    int fd;
    size_t page_size;
    uint64_t pages;      /* number of pages in the file */
    unsigned char *seen; /* a bit for each page */
    size_t bad;
    bool free_table;
    bool named; /* inside a named table, which contains no other */
};

static int walk_read_page(struct walk *walk, uint64_t number, unsigned char *out) {
    ssize_t n = pread(walk->fd, out, walk->page_size, (off_t)(number * walk->page_size));

    return n < 0 ? errno : (size_t)n == walk->page_size ? 0 : MDB_CORRUPTED;
}

/* Marks a page as used. False if it does not exist or is in use already. */
static bool walk_take_page(struct walk *walk, uint64_t number) {
    unsigned char bit = (unsigned char)(1u << (number % 8));

    if (number < 2 || number >= walk->pages || (walk->seen[number / 8] & bit) != 0)
        return false;
    walk->seen[number / 8] |= bit;
    return true;
}

static int walk_fail(struct walk *walk, uint64_t number) {
    walk->bad = (size_t)number;
    return MDB_CORRUPTED;
}

struct node {
    uint32_t low; /* size of the data, or low half of the child */
    uint16_t flags, key_len;
    const unsigned char *key, *data;
};

/* Reads the i-th node; false if it does not lie inside its page. */
static bool walk_get_node(const struct walk *walk, const unsigned char *page,
                          const struct page *head, size_t i, struct node *ret) {
    const unsigned char *at;
    uint16_t offset, low, high;
    size_t need;

    memcpy(&offset, page + HEADER + 2 * i, 2);
    if (offset < head->upper || offset % 2 != 0 || offset + (size_t)NODE > walk->page_size)
        return false;
    at = page + offset;
    memcpy(&low, at, 2);
    memcpy(&high, at + 2, 2);
    memcpy(&ret->flags, at + 4, 2);
    memcpy(&ret->key_len, at + 6, 2);
    ret->low = (uint32_t)high << 16 | low;
    ret->key = at + NODE;
    ret->data = ret->key + ret->key_len;
    need = (size_t)NODE + ret->key_len;
    if (head->flags & PAGE_LEAF)
        need += ret->flags & NODE_BIG ? sizeof(uint64_t) : ret->low;
    return offset + need <= walk->page_size;
}

static bool walk_keys_ascend(const struct walk *walk, const struct node *a, const struct node *b) {
    size_t len = a->key_len < b->key_len ? a->key_len : b->key_len;
    uint64_t x, y;
    int order;

    if (walk->free_table) {
        if (a->key_len != sizeof(x) || b->key_len != sizeof(y))
            return false;
        memcpy(&x, a->key, sizeof(x));
        memcpy(&y, b->key, sizeof(y));
        return x < y;
    }
    order = memcmp(a->key, b->key, len);
    return order < 0 || (order == 0 && a->key_len < b->key_len);
}

static int walk_check_overflow(struct walk *walk, const struct node *node, uint64_t parent,
                               uint64_t *ret_first, struct db *sum) {
    unsigned char head[HEADER];
    struct page page;
    uint64_t first, n;
    uint32_t pages;

    memcpy(&first, node->data, sizeof(first));
    n = (HEADER - 1 + (uint64_t)node->low) / walk->page_size + 1;
    for (uint64_t i = 0; i < n; i++)
        if (first > walk->pages || !walk_take_page(walk, first + i))
            return walk_fail(walk, parent);
    if (pread(walk->fd, head, HEADER, (off_t)(first * walk->page_size)) != HEADER)
        return walk_fail(walk, first);
    memcpy(&page, head, HEADER);
    memcpy(&pages, head + 12, sizeof(pages));
    if (page.number != first || (page.flags & PAGE_KINDS) != PAGE_OVERFLOW || pages != n ||
        pread(walk->fd, head, 1, (off_t)((first + n) * walk->page_size - 1)) != 1)
        return walk_fail(walk, first);
    sum->overflows += n;
    *ret_first = first;
    return 0;
}

static int walk_check_database(struct walk *walk, const struct db *db);

/* A list of free pages: a count, then descending page numbers. */
static int walk_check_free_list(struct walk *walk, const unsigned char *at, size_t len,
                                uint64_t number) {
    uint64_t n, id, last = UINT64_MAX;

    if (len < sizeof(n))
        return walk_fail(walk, number);
    memcpy(&n, at, sizeof(n));
    if (n > len / sizeof(id) - 1)
        return walk_fail(walk, number);
    for (uint64_t i = 1; i <= n; i++) {
        memcpy(&id, at + i * sizeof(id), sizeof(id));
        if (id >= last || !walk_take_page(walk, id))
            return walk_fail(walk, number);
        last = id;
    }
    return 0;
}

static int walk_check_big_free_list(struct walk *walk, const struct node *node, uint64_t first) {
    unsigned char *bytes;
    int rc;

    /* A sparse file could ask for gigabytes: a list has each page of the file once at most. */
    if (node->low / sizeof(uint64_t) > walk->pages + 1)
        return walk_fail(walk, first);
    bytes = malloc((size_t)node->low + 1);
    if (bytes == NULL)
        return ENOMEM;
    if (pread(walk->fd, bytes, node->low, (off_t)(first * walk->page_size + HEADER)) !=
        (ssize_t)node->low)
        rc = walk_fail(walk, first);
    else
        rc = walk_check_free_list(walk, bytes, node->low, first);
    free(bytes);
    return rc;
}

static int walk_check_leaf_node(struct walk *walk, const struct node *node, uint64_t number,
                                struct db *sum) {
    uint64_t first = 0;
    struct db sub;
    int rc = 0;

    sum->entries++;
    if ((node->flags & ~(NODE_BIG | NODE_SUB)) != 0)
        return walk_fail(walk, number);
    if (node->flags & NODE_BIG)
        rc = walk_check_overflow(walk, node, number, &first, sum);
    if (rc != 0)
        return rc;
    if (walk->free_table)
        return node->flags & NODE_BIG ? walk_check_big_free_list(walk, node, first)
                                      : walk_check_free_list(walk, node->data, node->low, number);
    if ((node->flags & NODE_SUB) == 0)
        return 0;
    if (node->low != sizeof(sub) || (node->flags & NODE_BIG) != 0 || walk->named)
        return walk_fail(walk, number);
    memcpy(&sub, node->data, sizeof(sub));
    walk->named = true;
    rc = walk_check_database(walk, &sub);
    walk->named = false;
    return rc;
}

static int walk_check_page(struct walk *walk, uint64_t number, unsigned depth, struct db *sum);

static int walk_check_nodes(struct walk *walk, const unsigned char *bytes, const struct page *head,
                            unsigned depth, struct db *sum) {
    size_t n = (size_t)(head->lower - HEADER) / 2;
    bool leaf = (head->flags & PAGE_LEAF) != 0;
    struct node node, before = {0};
    int rc = 0;

    if (leaf)
        sum->leaves++;
    else
        sum->branches++;
    for (size_t i = 0; i < n && rc == 0; i++, before = node) {
        if (!walk_get_node(walk, bytes, head, i, &node))
            return walk_fail(walk, head->number);
        /* LMDB never compares the first key of a branch. */
        if (i > (leaf ? 0u : 1u) && !walk_keys_ascend(walk, &before, &node))
            return walk_fail(walk, head->number);
        rc = leaf ? walk_check_leaf_node(walk, &node, head->number, sum)
                  : walk_check_page(walk, (uint64_t)node.flags << 32 | node.low, depth + 1, sum);
    }
    return rc;
}

static int walk_check_page(struct walk *walk, uint64_t number, unsigned depth, struct db *sum) {
    unsigned char *bytes;
    struct page head;
    unsigned kind;
    int rc;

    if (depth > sum->depth || !walk_take_page(walk, number))
        return walk_fail(walk, number);
    bytes = malloc(walk->page_size);
    if (bytes == NULL)
        return ENOMEM;
    rc = walk_read_page(walk, number, bytes);
    memcpy(&head, bytes, sizeof(head));
    kind = head.flags & PAGE_KINDS;
    if (rc == 0 &&
        (head.number != number || kind != (depth == sum->depth ? PAGE_LEAF : PAGE_BRANCH) ||
         head.lower < HEADER + (kind == PAGE_BRANCH ? 4 : 2) || head.lower % 2 != 0 ||
         head.lower > head.upper || head.upper > walk->page_size))
        rc = walk_fail(walk, number);
    if (rc == 0)
        rc = walk_check_nodes(walk, bytes, &head, depth, sum);
    free(bytes);
    return rc;
}

static int walk_check_database(struct walk *walk, const struct db *db) {
    struct db sum = {.depth = db->depth};
    int rc;

    if (db->root == ROOT_NONE)
        return db->entries == 0 && db->depth == 0 ? 0 : walk_fail(walk, 0);
    if (db->depth == 0 || db->depth > DEPTH_MAX)
        return walk_fail(walk, db->root);
    rc = walk_check_page(walk, db->root, 1, &sum);
    if (rc == 0 && (sum.branches != db->branches || sum.leaves != db->leaves ||
                    sum.overflows != db->overflows || sum.entries != db->entries))
        rc = walk_fail(walk, db->root);
    return rc;
}

static int walk_read_metas(struct walk *walk, struct meta *ret) {
    struct meta metas[2];

    for (unsigned i = 0; i < 2; i++)
        if (pread(walk->fd, &metas[i], sizeof(metas[i]), (off_t)(i * walk->page_size + HEADER)) !=
            (ssize_t)sizeof(metas[i]))
            return walk_fail(walk, i);
    *ret = metas[0].txnid < metas[1].txnid ? metas[1] : metas[0];
    return 0;
}

int lmdb_tree_check(int fd, size_t page_size, size_t *ret_page) {
    struct walk walk = {.fd = fd, .page_size = page_size};
    struct meta meta;
    int rc = walk_read_metas(&walk, &meta);

    if (rc == 0) {
        walk.pages = meta.last_page + 1;
        walk.seen = calloc(1, (size_t)(walk.pages / 8 + 1));
        rc = walk.seen == NULL ? ENOMEM : 0;
    }
    if (rc == 0)
        rc = walk_check_database(&walk, &meta.dbs[1]);
    walk.free_table = true;
    if (rc == 0)
        rc = walk_check_database(&walk, &meta.dbs[0]);
    free(walk.seen);
    *ret_page = walk.bad;
    return rc;
}

/* The fixed number of LMDB's table of free pages; LMDB's own tools rely on it too. */
#define FREE_TABLE 0

/* Each entry of the free list is a count and that many page numbers. */
int lmdb_check_free(MDB_txn *txn, size_t *ret) {
    MDB_cursor *cursor;
    MDB_val name, value;
    size_t n = 0;
    int rc = mdb_cursor_open(txn, FREE_TABLE, &cursor);

    if (rc != 0)
        return rc;
    while ((rc = mdb_cursor_get(cursor, &name, &value, MDB_NEXT)) == 0) {
        const size_t *ids = value.mv_data;

        if (value.mv_size < sizeof(*ids) || value.mv_size / sizeof(*ids) - 1 < ids[0]) {
            rc = MDB_CORRUPTED;
            break;
        }
        n += ids[0];
    }
    mdb_cursor_close(cursor);
    if (rc != MDB_NOTFOUND)
        return rc;
    *ret = n;
    return 0;
}

static int check_file_bad(const struct lmdb_env *env, off_t have, off_t need, size_t page,
                          struct idem_error *err) {
    if (have < need)
        return idem_error_set(
            err, IDEM_E_CORRUPT,
            "%s/data.mdb is truncated: it has %lld bytes of %lld; restore it from "
            "a copy, or move it away to start empty",
            env->config.path, (long long)have, (long long)need);
    return idem_error_set(err, IDEM_E_CORRUPT,
                          "%s/data.mdb is damaged: page %zu is not what it should be; restore it "
                          "from a copy, or move it away to start empty",
                          env->config.path, page);
}

/* A sound file may be shorter than its last page number implies: pages that were taken and given
   back in one transaction are never written. The file is lengthened by a hole, so that every mapped
   page exists. */
int lmdb_check_file(struct lmdb_env *env, struct idem_error *err) {
    struct stat st = {0};
    size_t page = 0, page_size;
    off_t need;
    int fd = -1, rc = lmdb_directory_open_file(env, "data.mdb", O_RDWR, &fd, &st, err);

    if (rc != 0)
        return rc;
    need = (off_t)lmdb_map_used(env, &page_size);
    rc = fd < 0 ? ENOENT : lmdb_tree_check(fd, page_size, &page);
    if (rc == 0 && st.st_size < need && ftruncate(fd, need) < 0)
        rc = errno;
    if (fd >= 0)
        close(fd);
    if (rc == MDB_CORRUPTED)
        return check_file_bad(env, st.st_size, need, page, err);
    return rc == 0 ? 0 : lmdb_fail(env, err, rc, "check data.mdb");
}

int lmdb_check_present(struct lmdb_env *env, struct idem_error *err) {
    struct stat st;

    if (fstatat(env->dir_fd, "data.mdb", &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_size > 0 ||
        !S_ISREG(st.st_mode)) /* a file of another kind is refused when it is opened */
        return 0;
    return idem_error_set(
        err, IDEM_E_CORRUPT,
        "%s/data.mdb is truncated: it is empty, and the store was in use; restore "
        "it from a copy, or move it away to start empty",
        env->config.path);
}

/* The length that LMDB gives it for 1024 readers, and a little more. */
#define LOCK_FILE_LEN (1024 * 64 + 256)

int lmdb_check_lock_file(struct lmdb_env *env, struct idem_error *err) {
    struct stat st;
    int fd, rc = lmdb_directory_open_file(env, "lock.mdb", O_RDWR | O_CREAT, &fd, &st, err);

    if (rc != 0)
        return rc;
    rc = posix_fallocate(fd, 0, LOCK_FILE_LEN);
    close(fd);
    return rc == 0 ? 0 : lmdb_fail(env, err, rc, "allocate lock.mdb");
}

bool lmdb_check_disk_full(const struct lmdb_env *env) {
    struct statvfs fs;

    return fstatvfs(env->dir_fd, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize < 1 << 20;
}
