/// What happens to a segment at one node.
package enum ShareEvent: Hashable, Sendable {
  /// What the node wants of the segment from now on: the blocks that readers ask for next, of whom the first is at
  /// `reader` and the others at `others`, and those of a background download. It replaces what was wanted before.
  case want(reader: Int?, others: BlockSet = BlockSet(), foreground: BlockSet, background: BlockSet)
  /// These blocks are stored on this node.
  case held(BlockSet)
  /// A list of the store names these blocks of the segment and no others.
  case listed(BlockSet)
  /// A GET of a block was answered.
  case looked(Int, LookResult)
  /// A GET of the lease was answered.
  case leaseRead(LeaseResult)
  /// A PUT of the lease was answered.
  case leaseWritten(WriteResult)
  /// A PUT of a claim was answered.
  case claimed(Int, WriteResult)
  /// So many KiB of a block have come from the origin; the rate in KiB a second, 0: not known.
  case arriving(Int, kibibytes: Int, rate: Int)
  /// Nothing is under way any more of what ``ShareAction/bypass(_:)`` asked for: it is here, or nobody waits for it.
  case window(Int)
  /// All that is missing of a block was asked from the origin: between two blocks no round trip is to be lost.
  case asked(Int)
  /// A fetch from the origin ended.
  case fetched(Int, FetchResult)
  /// The upload of a block ended.
  case uploaded(Int, UploadResult)
  /// A timer fired.
  case timer(ShareTimer)
  /// The breaker says whether the store is to be used.
  case tier(isUp: Bool)
  /// Another segment of the generation ended it.
  case over(EndOfSharing)
  /// The node leaves: what is under way ends without it.
  case leaves
}

/// How a GET of a block ends.
package enum LookResult: Hashable, Sendable {
  /// Its bytes are here, and have the right checksum.
  case found
  /// 404.
  case absent
  /// The checksum was wrong; the object was deleted if it was still the same.
  case rotten
  /// No answer in time, or an error.
  case failed
}

/// How a GET of a lease ends.
package enum LeaseResult: Hashable, Sendable {
  case found(Lease, ObjectVersion), absent, failed
}

/// How a conditional write ends.
package enum WriteResult: Hashable, Sendable {
  /// Written, as this version.
  case done(ObjectVersion)
  /// 412 or 409.
  case refused
  /// No answer in time, or an error: it may be written all the same, now or later.
  case unknown
}

/// How a request to the origin ends.
package enum FetchResult: Hashable, Sendable {
  /// The whole block is here.
  case whole
  /// The origin has another version (a 200 to If-Range, another validator or size).
  case changed
  /// The origin failed; the transfers' own retries are used up.
  case failed
  /// It was stopped.
  case stopped
}

/// How an upload ends.
package enum UploadResult: Hashable, Sendable {
  /// The block is in the store, by this node or with the same bytes by another.
  case stored, existed
  /// The store has other bytes for the block.
  case differs
  /// There was no room for it in the budget, or the store did not take it.
  case dropped
}

/// What a segment is to be told later. Each timer of a segment is set at most once; setting it anew replaces it.
package enum ShareTimer: Hashable, Sendable {
  /// Time to take a free lease.
  case jitter
  /// Time to look at the lease again, or at a block in best effort.
  case poll
  /// Time to renew the own lease.
  case renew
  /// The same version of the lease for as long as it lives.
  case expiry
  /// The holder's progress stands.
  case standing
  /// The reader of a block waited for others long enough: first its windows, then the block are fetched.
  case patience(Int)
  /// Another node's claim has had its time.
  case claim
}

/// What a node is to do for a segment.
package enum ShareAction: Hashable, Sendable {
  /// GET a block from the store.
  case look(Int)
  /// GET the lease.
  case readLease
  /// PUT the lease, with a timeout of 0.5 s and the allowance for far stores.
  case writeLease(Lease, WriteCondition)
  /// PUT the claim of a block if it is absent, with a timeout of 0.3 s and the allowance.
  case claim(Int, round: Int)
  /// Fetch a block from the origin with If-Range; readers get its bytes as they come.
  case fetch(Int)
  /// The reader of a block waited for long enough: ask the origin for the window that it waits for. It is not uploaded,
  /// and the rest of the block still comes from another node. A GET of the block that is too slow ends as failed.
  case bypass(Int)
  /// End that fetch.
  case stopFetch(Int)
  /// PUT a block if it is absent, in the background.
  case upload(Int)
  /// Set a timer, in milliseconds.
  case set(ShareTimer, after: Int)
  /// Take a timer back.
  case cancel(ShareTimer)
  /// The generation is over for sharing.
  case end(EndOfSharing)
}

/// Why a generation is shared no more.
package enum EndOfSharing: Hashable, Sendable {
  /// The origin has another version.
  case originChanged
  /// Two nodes got different bytes for one block.
  case unstable
}
