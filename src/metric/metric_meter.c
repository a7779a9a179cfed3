/*
 * The meter of a handle: adds each event to one number of the board.
 */
#include "metric/metric_meter.h"

static void meter_op(void *data, enum idem_op_kind kind, int rc, int64_t us) {
    static const enum board_op ops[IDEM_OP__COUNT] = {
        [IDEM_OP_CLAIM] = BOARD_OP_CLAIM,  [IDEM_OP_FINISH] = BOARD_OP_FINISH,
        [IDEM_OP_ISSUE] = BOARD_OP_OTHER,  [IDEM_OP_ONCE] = BOARD_OP_OTHER,
        [IDEM_OP_COUNT] = BOARD_OP_OTHER,  [IDEM_OP_LOOKUP] = BOARD_OP_OTHER,
        [IDEM_OP_LIST] = BOARD_OP_OTHER,   [IDEM_OP_SETTLE] = BOARD_OP_OTHER,
        [IDEM_OP_FORGET] = BOARD_OP_OTHER, [IDEM_OP_SWEEP] = BOARD_OP_OTHER,
        [IDEM_OP_STATS] = BOARD_OP_OTHER,  [IDEM_OP_TIME] = BOARD_OP_OTHER,
        [IDEM_OP_TX] = BOARD_OP_OTHER,
    };
    struct board_meter *meter = data;

    /* Failures are counted as an event. A record that is held or absent is not a failure of the
       store. */
    if (rc == 0 || rc == IDEM_E_ABSENT || rc == IDEM_E_LIVE || rc == IDEM_E_SETTLED)
        board_store_answered(meter->store);
    board_observe(&meter->store->ops[ops[kind]], us);
}

static void meter_event(void *data, enum idem_event event, uint64_t n) {
    struct board_meter *meter = data;

    board_add(&meter->store->events[event], n);
    if (event == IDEM_EVENT_STORE_ERROR)
        board_store_failed(meter->store);
}

static void meter_connected(void *data, bool again) {
    struct board_meter *meter = data;

    if (again)
        board_add(&meter->store->reconnects, 1);
}

static void meter_claims(void *data, int parked, int running) {
    struct board_meter *meter = data;

    board_change(&meter->process->parked, parked);
    board_change(&meter->process->running, running);
}

void board_meter_init(struct board_meter *meter, struct board_store *store,
                      struct board_process *process) {
    *meter = (struct board_meter){
        .meter = {.data = meter,
                  .op = meter_op,
                  .event = meter_event,
                  .connected = meter_connected,
                  .claims = meter_claims},
        .store = store,
        .process = process,
    };
}
