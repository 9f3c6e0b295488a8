import CSystem

/// Where a thread notes what it is busy with: a record in the session memory (mount-helper/PROTOCOL.md). The mount
/// helper looks at it to find a server that hangs.
///
/// A note costs no system call and no clock: it raises a number, and the helper keeps the time.
package struct ThreadRecord: @unchecked Sendable {
  // @unchecked: only the thread that called `begin` writes to the record, and `owner` keeps its memory.

  /// What a thread may be busy with. The helper has the words (`mount-helper/work.c`).
  package enum Work: UInt32 {
    case messages = 1, commit, space, transfers, planning, finishing
  }

  private let record: UnsafeMutablePointer<csystem_record>
  private let owner: any AnyObject & Sendable

  /// A record within memory that `owner` has.
  package init(at record: UnsafeMutablePointer<csystem_record>, in owner: any AnyObject & Sendable) {
    self.record = record
    self.owner = owner
  }

  /// Makes it the calling thread's.
  func begin() { csystem_begin_record(record) }

  /// The calling thread is about to end.
  func end() { csystem_end_record() }

  /// The calling thread begins another piece of work. Nothing if it has no record.
  package static func work(_ work: Work) { csystem_note_work(work.rawValue) }

  /// The calling thread is about to wait for work.
  package static func rest() { csystem_note_work(0) }
}
