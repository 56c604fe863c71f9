/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events of a seed, counted where they happen. A simulator that silently stops to
 * exercise something proves nothing any more, so the counts are demanded: some of every seed, the
 * others of a share of the seeds in a long range.
 */
#ifndef WEIR_TEST_SIM_COUNTS_H
#define WEIR_TEST_SIM_COUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* name, least in every seed, least share of seeds (permille) that have any, what it is */
#define SIM_COUNTS(X)                                                                              \
	X(nodes, 2, 1000, "nodes")                                                                 \
	X(connections, 4, 1000, "connections open at both ends")                                   \
	X(messages, 500, 1000, "messages received, contents verified")                             \
	X(sizes, SIM_SIZE_CLASSES, 1000, "of the border sizes: how many were received")            \
	X(rings_wrapped, 1, 1000, "peers' rings that were filled to their end and on")             \
	X(lost, 1, 1000, "frames lost")                                                            \
	X(doubled, 1, 1000, "frames that arrived twice")                                           \
	X(overtaken, 1, 1000, "frames that arrived after later ones")                              \
	X(corrupted, 1, 1000, "frames with bits flipped, or cut short")                            \
	X(full, 1, 1000, "times that a transmit queue was full")                                   \
	X(conserved, 1, 1000, "turns after which credits at both ends were compared")              \
	X(dark, 0, 60, "frames lost because a node was dark or cut off")                           \
	X(ring_stalls, 0, 500, "senders stopped by a peer's ring")                                 \
	X(window_stalls, 0, 900, "messages stopped by their connection's window")                  \
	X(spilled, 0, 200, "slots that waited for room in a program's ring")                       \
	X(bulk, 0, 900, "messages by rendezvous")                                                  \
	X(fetched, 0, 800, "of those: read by the receiver")                                       \
	X(by_send, 0, 900, "frames that left by SEND")                                             \
	X(datagrams, 0, 600, "datagrams received")                                                 \
	X(credit_writes, 0, 900, "credits returned by a WRITE of their own")                       \
	X(engine_sleeps, 0, 500, "times that an engine slept")                                     \
	X(engine_flinches, 0, 500, "times that an engine found work after raising its flags")      \
	X(engine_dozed, 0, 400, "times that it found nothing and slept on, its flags still up")    \
	X(engine_rung, 0, 500, "engines woken by a program's doorbell")                            \
	X(ring_stalled_sleeps, 0, 300, "engines asleep while a peer's ring stops them")            \
	X(window_stalled_sleeps, 0, 400, "engines asleep while a window stops them")               \
	X(program_sleeps, 0, 500, "times that a program slept")                                    \
	X(program_flinches, 0, 30, "times that a program found work after raising its flags")      \
	X(program_rung, 0, 500, "programs woken by a doorbell")                                    \
	X(blocked_sleeps, 0, 500, "programs asleep while a send of theirs waits")                  \
	X(shut, 0, 500, "ends that shut down sending and went on receiving")                       \
	X(rebound, 0, 300, "connections bound to another thread")                                  \
	X(batches, 0, 250, "calls that sent several messages")                                     \
	X(batches_received, 0, 250, "calls that received several messages")                        \
	X(batches_lent, 0, 250, "calls that lent several messages")                                \
	X(bundles, 0, 50, "batches of which messages shared slots")                                \
	X(cut_by_window, 0, 250, "batches cut short by their connection's window")                 \
	X(cut_by_ring, 0, 120, "batches cut short by a full ring")                                 \
	X(pieces, 0, 250, "messages received in pieces of memory")                                 \
	X(held_admitted, 0, 150, "held connections that were admitted")                            \
	X(held_refused, 0, 110, "held connections that were refused")                              \
	X(held_told, 0, 110, "refusals whose reason the connecting program has")                   \
	X(infos, 0, 170, "connections of which the facts were verified")                           \
	X(classes, 0, 170, "connections of other classes")                                         \
	X(classes_conserved, 0, 170,                                                               \
	  "turns after which credits of links of other classes were compared")                     \
	X(classes_broken, 0, 70, "turns at which a link of another class was broken")              \
	X(links_lost, 0, 15, "times that nobody answered on a link")                               \
	X(faults, 0, 250, "QPs that were made to fail")                                            \
	X(muted, 0, 30, "completions that were lost with their QP")                                \
	X(refused, 0, 30, "WRs that the peer refused by mistake")                                  \
	X(revoked, 0, 100, "regions of rings that were revoked")                                   \
	X(broken, 0, 250, "times that QPs of a link failed")                                       \
	X(repaired, 0, 250, "times that a link went on with new QPs")                              \
	X(replayed, 0, 150, "frames written again after that")                                     \
	X(bulk_replayed, 0, 40, "bulk WRITEs and READs made again after that")                     \
	X(rings_withdrawn, 0, 200, "rings that idle peers left")                                   \
	X(rings_regained, 0, 100, "rings that those got again")                                    \
	X(links_closed, 0, 300, "links that ended in order, unused")                               \
	X(links_evicted, 0, 20, "of those: to make room for others")                               \
	X(links_full, 0, 20, "links that found no room, and waited")                               \
	X(puts, 0, 200, "puts into memory of other programs, contents verified")                   \
	X(gets, 0, 80, "gets from it, contents verified")                                          \
	X(fetches, 0, 80, "fetches, and compare and swap, of words in it, values verified")        \
	X(layouts, 0, 60, "of all these: with layouts")                                            \
	X(notices, 0, 60, "notices that owners took, when what they tell of was there")            \
	X(signals, 0, 60, "signals whose words were verified")                                     \
	X(puts_apart, 0, 40, "of all these: of programs on the same host")                         \
	X(exports_revoked, 0, 40, "exports that were revoked while others put")                    \
	X(locks, 0, 200, "locks granted, while nobody held them")                                  \
	X(locks_shared, 0, 150, "of those: to readers")                                            \
	X(locks_queued, 0, 100, "of those: while others waited behind")                            \
	X(locks_given_up, 0, 60, "requests for locks that were taken back")                        \
	X(locks_dead, 0, 2, "locks of programs that died, and the next was told")                  \
	X(locks_cut, 0, 5, "of those: of programs of a node that was cut off")                     \
	X(cut_off, 0, 3, "fetches of holders that were cut off, and heard so")                     \
	X(passed_told, 0, 120, "ranges of memory that programs passed on by word of mouth")        \
	X(passed_message, 0, 20, "by a message")                                                   \
	X(passed_notice, 0, 120, "by a notice, behind operations under way")                       \
	X(passed_signal, 0, 120, "by a signal word, behind operations under way")                  \
	X(passed_lock, 0, 80, "by the lock of their export")                                       \
	X(raced, 0, 150, "operations that raced for words, results verified")                      \
	X(mapped, 0, 20, "programs that had mapped such memory")                                   \
	X(answer_stalls, 0, 50, "operations that waited for room for their answer at their peer")  \
	X(answers_conserved, 0, 200, "turns after which credit for answers was compared")          \
	X(updates_replayed, 0, 20, "links repaired that broke with updates under way")             \
	X(large, 0, 100, "of those puts and gets by WRITE and READ, of up to 200 KiB and more")    \
	X(revoked_under, 0, 60, "revocations repeated because peers had WRITEs and READs")         \
	X(deaths, 0, 80, "programs that died, nodes that were cut off")

struct sim_counts {
#define X(name, least, share, help) uint64_t name;
	SIM_COUNTS(X)
#undef X
	/* bits of what operations on common memory had: a length of the lists below, with its
	 * content verified; an enum weir_type; an enum weir_acc */
	uint64_t put_borders, get_borders, update_borders, types, accs;
};

/* Lengths at which a put or a get, or an update, changes its way. */
#define SIM_BORDERS 16u
#define SIM_UPDATE_BORDERS 8u
extern const uint32_t sim_borders[SIM_BORDERS], sim_update_borders[SIM_UPDATE_BORDERS];

struct sim_tally { /* of a range of seeds */
	uint64_t seeds;
	struct sim_counts sum, having;
};

#define SIM_SIZE_CLASSES 24u /* in oracle.c */
#define SIM_LONG_RANGE 500u  /* seeds from which on the shares are demanded */

/* The line of the list above that a seed lacks, or NULL. */
const char *sim_counts_lack(const struct sim_counts *c, uint64_t *have, uint64_t *least);
void sim_tally_add(struct sim_tally *t, const struct sim_counts *c);
void sim_tally_print(const struct sim_tally *t);
/* Prints what too few seeds had, or none; false if there is any. */
bool sim_tally_check(const struct sim_tally *t);

#endif
