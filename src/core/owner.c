/*
 * Owner ids: 128 random bits each, for every claim one. The system is asked for many at a time,
 * because a system call per claim would be a part of a replay's cost that can be seen.
 *
 * Two claims with one id would both be told to run. So a child never has what its parent has
 * left: the kernel wipes the page in it, by whatever call it was forked. A machine that is copied
 * with its memory has a copy of the page: the time, to the nanosecond, tells the two apart. Who
 * finds the page in use by another thread, or none, asks the system himself; nobody waits.
 */
#include "core/owner.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/hash.h"

#define IDS 64

/* All zero, as the kernel gives it to a child: free, and empty. */
struct page {
    atomic_bool taken;
    unsigned left;
    unsigned char ids[IDS][IDEM_OWNER_LEN];
};

static struct page *page;
static pthread_once_t page_once = PTHREAD_ONCE_INIT;

static void page_make(void) {
    void *at =
        mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        return;
    if (madvise(at, sizeof(*page), MADV_WIPEONFORK) == 0)
        page = at;
    else
        munmap(at, sizeof(*page));
}

/* With the page taken. */
static int id_take(unsigned char owner[IDEM_OWNER_LEN]) {
    unsigned char *id;
    struct timespec now;
    uint64_t part;

    if (page->left == 0) {
        if (idem_random(page->ids, sizeof(page->ids)) != 0)
            return IDEM_E_REFUSED;
        page->left = IDS;
    }
    id = page->ids[--page->left];
    clock_gettime(CLOCK_REALTIME, &now);
    memcpy(&part, id, sizeof(part));
    part ^= (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    memcpy(owner, id, IDEM_OWNER_LEN);
    memcpy(owner, &part, sizeof(part));
    OPENSSL_cleanse(id, IDEM_OWNER_LEN);
    return 0;
}

int idem_owner_make(unsigned char owner[IDEM_OWNER_LEN]) {
    int rc;

    pthread_once(&page_once, page_make);
    if (page == NULL || atomic_exchange_explicit(&page->taken, true, memory_order_acquire))
        return idem_random(owner, IDEM_OWNER_LEN);
    rc = id_take(owner);
    atomic_store_explicit(&page->taken, false, memory_order_release);
    return rc;
}
