/// How long a node waits for others, in milliseconds. All of it grows with the store's round trip, and what many nodes
/// would do at the same moment is spread by their ranks.
package struct ShareTimes: Hashable, Sendable {
  /// The size of a block in KiB.
  package var block: Int
  /// Four round trips to the store, which each time of a lease gets on top.
  package var allowance: Int
  /// How many nodes were seen today, this one included.
  package var nodes: Int
  /// This node's place among them for the segment, from 0 (``Rendezvous``).
  package var rank: Int
  /// The rate at which the origin brought blocks to this node, in KiB a second; 0: not known.
  package var ownRate = 0

  /// The times of a node. `roundTrip`: to the store, in milliseconds.
  package init(block: Int = 4096, roundTrip: Int, nodes: Int, rank: Int) {
    self.block = block
    allowance = 4 * roundTrip
    self.nodes = nodes
    self.rank = rank
  }

  /// Below 5 MiB a second renewals would cost more than what they bring.
  static let slow = 5 * 1024

  /// From one renewal to the next.
  package func renewal(rate: Int) -> Int { rate > 0 && rate < Self.slow ? 2000 : 1000 }

  /// How long the same version of a lease counts as held. The nodes take over one after the other.
  package func expiry(rate: Int) -> Int { 3 * renewal(rate: rate) + allowance + spread(first: 40, others: 4) }

  /// When a free lease may be taken: of many nodes that come together one writes, and the others see it. The last one
  /// looks after a second: later, its reader's patience would be over before it saw that another one fetches.
  package var jitter: Int { min(rank, 8) * 40 + max(0, rank - 8) * min(4 * nodes, 680) / max(1, nodes) }

  /// How long the holder's progress may stand.
  package func standing(rate: Int) -> Int {
    renewal(rate: rate) + 200 + allowance + spread(first: 50, others: Self.herd)
  }

  /// How long a claim that another node has keeps this one from the same block: it is fetched and stored meanwhile.
  package func claim(rate: Int) -> Int { max(800, 300 + time(rate: rate) * 5 / 4) + allowance }

  /// How long a reader waits for others in all, before its own windows are asked from the origin: 2.0 s, and up to
  /// half a second more among many nodes.
  package var patience: Int { 2000 + allowance + late }

  /// From one window that a reader gets from the origin to the next: 1 s. Where the last one has not come by then, the
  /// origin is crowded: the pause gets so long that the windows of all nodes take half of what the origin brings, at
  /// most 10 s. Otherwise they would take it from whoever fetches the block for all.
  package func nextWindow(rate: Int, isCrowded: Bool) -> Int {
    isCrowded ? min(max(1000, max(nodes, 4) * time(rate: rate) / 8), 10_000) : 1000
  }

  /// How much later this node fetches the whole block, if no other node has stored it. The reader has its windows
  /// meanwhile. Of more than eight nodes one begins after the other: at a crowded origin, when the one before it should
  /// have the block. At most 12 s, or 16 windows' pauses.
  package func resort(rate: Int, isCrowded: Bool) -> Int {
    let (step, most) = isCrowded ? (max(Self.herd, time(rate: rate)), 160_000) : (Self.herd, 12_000)
    return 1500 + time(rate: rate) + allowance + min(max(0, rank - 8) * step, most)
  }

  /// Of many nodes that turn to the origin, each is so much later. The nodes seen today may be gone by now, and no
  /// reader waits for their turns: half a second at most.
  private var late: Int { min(max(0, rank - 8) * Self.herd, 500) }

  /// How long a block takes at the faster of a rate and the own one: at most 20 s.
  private func time(rate: Int) -> Int {
    let rate = max(rate, ownRate)
    return rate > 0 ? min(block * 1000 / rate, 20_000) : 500
  }

  /// From one look at a lease to the next. `blocks`: how many the holder fetches before the one that the reader waits
  /// for. Many nodes ask less often.
  package func poll(rate: Int, blocks: Int) -> Int {
    let perBlock = rate > 0 ? block * 1000 / rate : 0
    let longest = renewal(rate: rate) == 1000 ? 400 : 600
    let wait = blocks > 0 ? min(max(blocks * perBlock / 2, 50), longest) : (perBlock > 800 ? longest : 200)
    return max(wait, nodes / 2)
  }

  /// The holder says what it stored at most once in so many milliseconds.
  static let news = 500

  /// From a read that brought news to the next one: the holder may say more then, or has the rest of the segment.
  /// `blocks`: of the rest.
  package func pollAfterNews(rate: Int, blocks: Int) -> Int {
    let rest = rate > 0 ? blocks * block * 1000 / rate : Self.news
    return max(min(max(rest, 50), Self.news), nodes / 2)
  }

  /// From one look at a block to the next where there are no leases.
  package var blockPoll: Int { max(400, nodes) }

  /// When a node fetches a block for which another one is first, where there are no leases.
  package var turn: Int { rank == 0 ? 0 : min(1000 + 500 * rank, patience) }

  /// Of more than eight nodes each waits so much longer than the one before it, in milliseconds, before it asks the
  /// origin: about what a claim takes to be seen.
  static let herd = 12

  private func spread(first: Int, others: Int) -> Int { min(rank, 8) * first + max(0, rank - 8) * others }
}
