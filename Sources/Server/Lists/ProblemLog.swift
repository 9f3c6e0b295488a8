import Base
import Manifest

/// Logs the problems of an import, but for those that the log has of the import before it: each folder of a server that
/// comes, and each line that changes, is an import.
struct ProblemLog {
  /// What the log has: the texts, of one import the first ``most``.
  final class Told: Sendable {
    fileprivate let texts = Lock<Set<String>>([])
  }

  /// The most problems of an import in the log. It counts the others.
  private static let most = 100
  /// How many texts are remembered of imports of folders alone.
  private static let mostTold = 10_000

  private let told: Told?
  /// The lists, for messages; and the one that a problem without a list is of: the one at the top, or, if there is
  /// none, all.
  private let (names, name): (String, String)
  private var texts: Set<String> = []
  private var count = 0

  init(_ request: MountRequest) {
    told = request.lists?.told
    names = request.listName
    name = request.manifest.isEmpty ? names : request.allLists[0].shown
  }

  mutating func note(_ problem: ManifestProblem) {
    count += 1
    if count <= Self.most { tell("\(problem.list ?? name):\(problem.line): \(problem.text)") }
  }

  private mutating func tell(_ text: String) {
    guard texts.insert(text).inserted, told?.texts.withLock({ $0.contains(text) }) != true else { return }
    Log.warning(text)
  }

  /// The import is over. `isWhole`: it was of the whole list, which was taken; what another one tells is added.
  mutating func end(isWhole: Bool) {
    if count > Self.most { tell("\(names): \(count - Self.most) more problems; `mediafs check` lists them all") }
    told?.texts.withLock { [texts] told in
      if isWhole || told.count > Self.mostTold { told = [] }
      told.formUnion(texts)
    }
  }
}
