import Base
import Glibc
import Testing

@testable import Storing

/// What the store remembers of lists and folders that servers gave.
@Suite struct RememberedDocumentTests {
  private static let url = "https://user:secret@host/films/?token=t"

  private func documents(_ folder: TestFolder) throws -> RememberedDocuments {
    try RememberedDocuments(in: StoreFolder.open(folder.path + "/store", mountpoint: "/m", wait: 0))
  }

  private func head(_ kind: DocumentHead.Kind = .list) -> DocumentHead {
    var head = DocumentHead(url: Self.url, finalURL: "https://host/other/\n", kind: kind, fetched: 1_700_000_000)
    (head.etag, head.lastModified, head.mediaType, head.method) = ("\"a\\b\"", 1_600_000_000, "text/html", "PROPFIND")
    return head
  }

  @discardableResult
  private func remember(_ text: String, _ documents: RememberedDocuments) throws -> Bool {
    let writer = try documents.begin(head())
    try text.utf8.span.withUnsafeBytes { bytes throws(StoreError) in try writer.write(bytes) }
    return try writer.place(names: 3)
  }

  private func body(_ documents: RememberedDocuments) -> String? {
    guard let file = try? documents.open(Self.url)?.file.take() else { return nil }
    var bytes = [UInt8](repeating: 0, count: 1 << 16)
    let count = read(file.rawValue, &bytes, bytes.count)
    return String(decoding: bytes[..<max(0, count)], as: UTF8.self)
  }

  @Test func whatCameIsThere() throws {
    let folder = try TestFolder()
    let documents = try documents(folder)
    #expect(try documents.open(Self.url) == nil)
    #expect(try remember("\n\nlength=7\n\nb", documents))
    var wanted = head()
    wanted.names = 3
    #expect(documents.head(of: Self.url) == wanted)
    #expect(body(documents) == "\n\nlength=7\n\nb")
    var status = stat()
    try #require(stat(documents.path(of: Self.url), &status) == 0)
    #expect(status.st_mode & 0o777 == 0o600)
    #expect(!documents.path(of: Self.url).contains("host"))
  }

  @Test("The list that was taken last is back when the next one is refused, or was never read")
  func nextOne() throws {
    let folder = try TestFolder()
    var documents = try documents(folder)
    try remember("one", documents)
    #expect(documents.pending.isEmpty, "there was none before it")
    try remember("two", documents)
    try remember("three", documents)
    #expect(body(documents) == "three" && documents.pending.count == 1)
    #expect(try documents.refused() && !documents.refused())
    #expect(body(documents) == "one")
    // One that comes while an import reads the one before is not taken with it.
    try remember("two", documents)
    let pending = documents.pending
    try remember("three", documents)
    documents.took(pending)
    #expect(try documents.refused())
    #expect(body(documents) == "one")
    try remember("two", documents)
    documents.took(documents.pending)
    #expect(try !documents.refused())
    #expect(body(documents) == "two")
    // The server is killed before it reads the next one.
    try remember("three", documents)
    documents = try RememberedDocuments(in: StoreFolder.open(folder.path + "/store", mountpoint: "/m", wait: 0))
    #expect(body(documents) == "two")
  }

  @Test func whatAKilledServerWasWritingSaysThatThereWasSomething() throws {
    let folder = try TestFolder()
    let store = try StoreFolder.open(folder.path + "/store", mountpoint: "/m", wait: 0)
    let empty = try RememberedDocuments(in: store)
    #expect(empty.wasEmpty)
    let unfinished = empty.path + "/0123.new"
    close(creat(unfinished, 0o600))
    #expect(try !RememberedDocuments(in: store).wasEmpty)
    #expect(access(unfinished, F_OK) != 0)
    #expect(try RememberedDocuments(in: store).wasEmpty)
  }

  @Test func whatNobodyNamesGoes() throws {
    let folder = try TestFolder()
    let documents = try documents(folder)
    try remember("one", documents)
    let other = documents.path + "/readme"
    close(creat(other, 0o600))
    func age(_ days: Int) throws {
      for path in [documents.path(of: Self.url), other] {
        var times = [timespec](repeating: timespec(tv_sec: time(nil) - days * 86_400, tv_nsec: 0), count: 2)
        try #require(utimensat(AT_FDCWD, path, &times, 0) == 0)
      }
    }
    try age(31)
    try documents.forget(allBut: ["https://host/else/", Self.url], olderThan: 30 * 86_400)
    #expect(body(documents) == "one", "a list names it")
    try documents.forget(allBut: ["https://host/else/"], olderThan: 30 * 86_400)
    #expect(body(documents) == "one", "one named it a moment ago")
    try age(29)
    try documents.forget(allBut: ["https://host/else/"], olderThan: 30 * 86_400)
    #expect(body(documents) == "one", "it is not old enough")
    try age(31)
    try documents.forget(allBut: ["https://host/else/"], olderThan: 30 * 86_400)
    #expect(body(documents) == nil)
    #expect(access(other, F_OK) == 0, "it is no file of mediafs's")
  }

  @Test func whatCannotBeReadIsNotGone() throws {
    let folder = try TestFolder()
    let documents = try documents(folder)
    try remember("good", documents)
    unlink(documents.path(of: Self.url))
    // ELOOP: as with too many open files, nobody knows what is there.
    #expect(symlink("elsewhere", documents.path(of: Self.url)) == 0)
    #expect(throws: Errno.self) { try documents.open(Self.url) }
  }

  @Test func theSameIsNotWrittenAgain() throws {
    let folder = try TestFolder()
    let documents = try documents(folder)
    try remember("one", documents)
    #expect(try !remember("one", documents))
    #expect(try remember("two", documents))
    #expect(body(documents) == "two")
  }

  @Test func whatWasNotPlacedIsGone() throws {
    let folder = try TestFolder()
    let documents = try documents(folder)
    try remember("good", documents)
    do {
      let writer = try documents.begin(head())
      try "half".utf8.span.withUnsafeBytes { bytes throws(StoreError) in try writer.write(bytes) }
      #expect(access(writer.path, F_OK) == 0)
    }
    #expect(access(documents.path(of: Self.url) + ".new", F_OK) != 0)
    #expect(body(documents) == "good")
  }

  @Test func whatIsDamagedIsNotThere() throws {
    let folder = try TestFolder()
    let documents = try documents(folder)
    try remember("a body", documents)
    let path = documents.path(of: Self.url)
    let whole = try #require(contents(path))
    func check(_ bytes: [UInt8], _ why: Comment) throws {
      try folder.write(String(path.dropFirst(folder.path.count + 1)), bytes)
      #expect(try documents.open(Self.url) == nil, why)
    }
    for count in 0..<whole.count { try check(Array(whole[..<count]), "\(count) bytes") }
    try check(whole + [0x0A], "a byte more")
    for index in whole.indices {
      var other = whole
      other[index] ^= 1 << UInt8(index % 8)
      try check(other, "another bit in byte \(index)")
    }
    let text = String(decoding: whole, as: UTF8.self)
    for (old, new) in [
      ("document 1", "document 2"), ("kind=list", "kind=mess"), ("length=0", "length=9"),
      ("user:secret", "other:user_"),
    ] {
      try check(Array(text.replacing(old, with: new).utf8), "\(new)")
    }
    try folder.write(String(path.dropFirst(folder.path.count + 1)), whole)
    #expect(body(documents) == "a body")
  }
}
