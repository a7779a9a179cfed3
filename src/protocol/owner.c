/*
 * Owner ids: 128 random bits for each claim. Random bits are fetched in batches, because a system
 * call per claim would be a measurable part of a replay's cost.
 *
 * Two claims with the same id would both run. So a child must never use the rest of its parent's
 * batch: the kernel wipes the page in every child (MADV_WIPEONFORK). A virtual machine that is
 * cloned with its memory has a copy of the page; the clock, in nanoseconds, makes the ids of both
 * differ. A thread that finds the page in use, or missing, calls the system itself; no thread
 * waits.
 */
#include "protocol/owner.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/hash.h"

#define IDS 64

/* All zeros, as in a child after a fork, means free and empty. */
struct page {
    atomic_bool taken;
    unsigned left;
    unsigned char ids[IDS][IDEM_OWNER_LEN];
};

static struct page *page;
static pthread_once_t page_once = PTHREAD_ONCE_INIT;

static void owner_page_make(void) {
    void *at =
        mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        return;
    if (madvise(at, sizeof(*page), MADV_WIPEONFORK) == 0)
        page = at;
    else
        munmap(at, sizeof(*page));
}

/* The caller has set page->taken. */
static int owner_id_take(unsigned char owner[IDEM_OWNER_LEN]) {
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

    pthread_once(&page_once, owner_page_make);
    if (page == NULL || atomic_exchange_explicit(&page->taken, true, memory_order_acquire))
        return idem_random(owner, IDEM_OWNER_LEN);
    rc = owner_id_take(owner);
    atomic_store_explicit(&page->taken, false, memory_order_release);
    return rc;
}
