import Base
import Manifest
import Testing

@testable import Reading

/// What a file's report says, from what is known of it.
@Suite struct ReportTables {
  private let now = Instant(nanoseconds: 1_000_000_000_000)
  private let half = ByteRangeSet(ByteRange(0, 50))

  private func report(_ change: (inout FileFacts) -> Void) -> FileReport {
    var facts = FileFacts()
    facts.size = 100
    facts.stored = half
    facts.server = FileFacts.Server(lacksSpace: false, isWanted: false)
    facts.activity = Activity()
    facts.activity?.isWanted = true
    change(&facts)
    return FileReport(path: "a", facts, now: now)
  }

  private func waits(_ change: (inout FileFacts) -> Void) -> FileReport.Awaited? { report(change).awaits }

  @Test("Each thing that keeps the next transfer from starting")
  func awaited() {
    let later = now.adding(seconds: 60)
    #expect(waits { _ in } == nil, "it is about to be asked for")
    #expect(waits { $0.activity?.isWanted = false } == .reader)
    #expect(waits { $0.activity?.cannotBeStored = true } == .reader)
    #expect(waits { $0.server?.lacksSpace = true } == .space)
    #expect(waits { $0.activity?.isPaused = true } == .space)
    #expect(waits { $0.activity?.retryAt = later } == .origin(until: later))
    #expect(waits { $0.activity?.retryAt = now } == nil)
    #expect(waits { $0.activity?.standsBack = true } == .line)
    #expect(
      waits {
        $0.activity?.standsBack = true
        $0.activity?.lacksConnection = true
      } == .turn)
  }

  @Test("Of two the first one that would have to end; a waiting reader needs neither policy nor room")
  func order() {
    let later = now.adding(seconds: 60)
    #expect(
      waits {
        $0.server?.lacksSpace = true
        $0.activity?.retryAt = later
      } == .space)
    #expect(
      waits {
        $0.server?.lacksSpace = true
        $0.activity?.isWanted = false
        $0.activity?.hasWaiters = true
        $0.activity?.retryAt = later
      } == .origin(until: later))
    #expect(
      waits {
        $0.activity?.transfers = 1
        $0.activity?.retryAt = later
      } == nil)
  }

  @Test("What nobody looks at waits for a reader, or for its turn in the list of what goes on")
  func notInMemory() {
    #expect(waits { $0.activity = nil } == .reader)
    #expect(
      waits {
        $0.activity = nil
        $0.server?.isWanted = true
      } == .turn)
    #expect(
      waits {
        $0.activity = nil
        $0.server = FileFacts.Server(lacksSpace: true, isWanted: true)
      } == .space)
    #expect(waits { $0.server = nil } == nil, "without a server nobody knows")
  }

  @Test("What is over, or whole, waits for nothing")
  func over() {
    #expect(waits { $0.copy = .intact } == nil)
    #expect(waits { $0.copy = .modified("/l/a") } == nil)
    #expect(waits { $0.activity?.isFailed = true } == nil)
    let whole = report {
      $0.stored = ByteRangeSet(ByteRange(0, 100))
      $0.server?.lacksSpace = true
    }
    #expect(whole.awaits == nil && whole.state == .partial, "it is being verified")
    let missing = report {
      $0.stored = ByteRangeSet(ByteRange(0, 100))
      $0.copy = .missing
      $0.activity = nil
    }
    #expect(missing.awaits == .reader && missing.state == .remote && missing.stored == 0)
  }

  @Test("With and without a server a file is in the same state, with the same error")
  func sameState() {
    let error = LastError(message: "gone", at: now)
    let copies: [FileFacts.Copy?] = [nil, .intact, .modified("/l/a"), .missing, .unreachable("/l")]
    for copy in copies {
      for problem in [nil, error] {
        let served = report {
          $0.copy = copy
          $0.problem = problem
          $0.activity = nil
        }
        let offline = report {
          $0.copy = copy
          $0.problem = problem
          $0.activity = nil
          $0.server = nil
        }
        #expect(served.state == offline.state && served.error == offline.error, "\(served) \(offline)")
        #expect(served.stored == offline.stored && served.ranges == offline.ranges)
        #expect(served.errorAt == offline.errorAt)
        #expect(served.advice?.contains("mount, and") != true, "a mount that runs is not to be mounted")
      }
    }
    #expect(report { $0.copy = .modified("/l/a") }.error == "the copy /l/a was changed")
  }

  @Test("The transfer thread's word of a failure is newer than the catalog's")
  func forgiven() {
    let error = LastError(message: "gone", at: now)
    #expect(report { $0.problem = error }.state == .partial, "it is tried again")
    #expect(
      report {
        $0.problem = error
        $0.activity = nil
      }.state == .failed)
  }

  @Test("The log has the same failure of a file once a minute, and another one, or one after bytes came, at once")
  func logged() {
    var errors = LastErrors()
    let (one, other) = (ResourceKey(high: 0, low: 1), ResourceKey(high: 0, low: 2))
    func isNews(_ message: String, _ key: ResourceKey, _ seconds: Double) -> Bool {
      errors.isNews(message, of: key, now.adding(seconds: seconds))
    }
    #expect(isNews("gone", one, 0) && isNews("gone", other, 0))
    #expect(!isNews("gone", one, 1) && !isNews("gone", one, 59))
    #expect(isNews("silent", one, 59) && isNews("gone", one, 60) && isNews("gone", other, 60))
    errors.forget(one)
    #expect(isNews("gone", one, 61))
    for number in 0..<UInt64(3 * LastErrors.most) {
      #expect(isNews("gone", ResourceKey(high: 1, low: number), 62))
    }
  }

  @Test("So many errors are kept, and of more the latest")
  func bounded() {
    var errors = LastErrors()
    for number in 0..<UInt64(3 * LastErrors.most) {
      let error = LastError(message: "\(number)", at: now.adding(seconds: Double(number)))
      errors.note(error, of: ResourceKey(high: 0, low: number))
      #expect(errors.keys.count <= LastErrors.most)
      #expect(errors[ResourceKey(high: 0, low: number)] == error)
    }
    errors.forget(ResourceKey(high: 0, low: UInt64(3 * LastErrors.most) - 1))
    #expect(errors[ResourceKey(high: 0, low: UInt64(3 * LastErrors.most) - 1)] == nil)
    #expect(errors[ResourceKey(high: 0, low: UInt64(3 * LastErrors.most) - 2)] != nil)
  }
}
