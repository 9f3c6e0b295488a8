import Base
import Reading
import Storing

/// Tells the service manager in one line how the server is, and when it reads its list again: through the helper, which
/// alone speaks to it (mount-helper/PROTOCOL.md, "Under a service manager"). Any thread may call.
final class ServiceTeller: Sendable {
  private struct State {
    var text = ""
    /// What had come from origins, and when.
    var fetched: (bytes: UInt64, at: Instant)?
  }

  private let link: HelperLink
  private let state = Lock(State())

  init(_ link: HelperLink) { self.link = link }

  /// The list begins to be read, or has been.
  func reloading(_ begins: Bool) { send("", begins ? .begins : .isOver) }

  /// Tells how much is stored, how fast more comes, and what is wrong. Waits for the disk.
  func tell(_ fileSystem: MediaFileSystem, _ catalog: Catalog, problem: String?) {
    do throws(StoreError) {
      let (sums, files) = (try catalog.generations.sums(), try catalog.tree.counts().files)
      let fetched = fileSystem.metrics().requests.reduce(0) { $0 &+ $1.bytes }
      let text = state.withLock { (state) -> String? in
        let now = Instant.now
        let rate = state.fetched.map { Double(fetched &- $0.bytes) / max(1, now.seconds(since: $0.at)) } ?? 0
        state.fetched = (fetched, now)
        let text = Self.line(
          files: files, complete: sums.complete.files,
          stored: .clampedSum(sums.partial.bytes, sums.complete.bytes), rate: rate,
          problem: fileSystem.storeUse.lack.map { "the store is full: \($0.advice)" } ?? problem)
        defer { state.text = text }
        return text == state.text ? nil : text
      }
      if let text { send(text, .same) }
    } catch { Log.debug("the service manager is told nothing: \(error.message)") }
  }

  /// `rate`: in bytes per second.
  static func line(files: Int64, complete: Int64, stored: Int64, rate: Double, problem: String?) -> String {
    var text = "\(files) \(files == 1 ? "file" : "files"), \(complete) complete, \(ByteSize.shown(stored)) stored"
    // Two threads that tell at once may see the later sum first: their difference is below zero, and wraps.
    if rate >= 1, rate < 1e18 { text += ", \(ByteSize.shown(Int64(rate)))/s" }
    if let problem { text += ". \(problem)" }
    return text
  }

  private func send(_ text: String, _ reload: HelperLink.Reload) {
    do throws(ServerError) { try link.sendState(text, reload) } catch { Log.debug("the link has ended: \(error)") }
  }
}
