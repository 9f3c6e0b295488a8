import Base
import Glibc
import Reading
import Testing

@testable import Mount

extension Tests {
  @Suite("Programs that watch a mount")
  struct WatcherTests {
    typealias Node = SyntheticFileSystem.Node

    /// A mount with a folder, and its waker.
    private static func mount(
      _ more: [Node] = [], notices: consuming FileDescriptor? = nil,
      before: @escaping @Sendable (Character, String) -> Int32? = { _, _ in nil }
    ) throws -> (mount: RealMount, waker: TestWaker) {
      let ends = try makeSocketPair()
      let mount = try RealMount(
        [
          Node(inode: 50, parent: rootInode, name: "lib", isFolder: true),
          Node(inode: 51, parent: 50, name: "old.mkv", size: 3_000_000),
        ] + more, notices: notices, waking: FileDescriptor(owning: ends.0))
      return (mount, TestWaker(path: mount.path, socket: FileDescriptor(owning: ends.1), before: before))
    }

    /// A new list: hides what is new, changes the tree, has it announced.
    private static func reload(_ mount: RealMount, add: [Node] = [], remove: [Inode] = []) {
      let added = add.map { TreeChange.added(parent: $0.parent, name: $0.name, isFolder: $0.isFolder) }
      mount.session.prepare(added)
      let removed = mount.fileSystem.state.withLock { state in
        for node in add { state.nodes[node.inode] = node }
        return remove.compactMap { state.nodes[$0] }.map { node in
          state.nodes[node.inode]?.parent = 0  // open handles still ask for its attributes
          return TreeChange.removed(parent: node.parent, name: node.name, isFolder: node.isFolder)
        }
      }
      mount.session.announce(removed + added)
    }

    @Test func eachNameThatComesOrGoesIsOneEvent() throws {
      let (mount, _) = try Self.mount()
      defer { mount.end() }
      let watch = try Watch("\(mount.path)/lib")
      #expect(mount.sh("ls lib; stat lib/new.mkv 2>&1 | grep -c 'No such'").lines == ["old.mkv", "1"])
      let film = open("\(mount.path)/lib/old.mkv", O_RDONLY)
      defer { close(film) }
      Self.reload(
        mount,
        add: [
          Node(inode: 52, parent: 50, name: "new.mkv", size: 100),
          Node(inode: 53, parent: 50, name: "Season 1", isFolder: true),
          Node(inode: 54, parent: 53, name: "a.mkv", size: 100),
        ])
      #expect(watch.events(2) == ["+new.mkv", "+Season 1"])
      let names = mount.sh("stat -c %i lib/new.mkv lib/'Season 1'; ls lib; ls 'lib/Season 1'")
      #expect(names.lines == ["52", "53", "Season 1", "new.mkv", "old.mkv", "a.mkv"])
      Self.reload(mount, remove: [51, 53, 54])
      #expect(watch.events(2) == ["-old.mkv", "-Season 1"])
      #expect(mount.sh("ls lib; stat lib/old.mkv 2>&1 | grep -c 'No such'").lines == ["new.mkv", "1"])
      var byte: UInt8 = 0
      #expect(pread(film, &byte, 1, 2_000_000) == 1 && byte == pattern(51, 2_000_000))
    }

    /// Nobody has looked at the names that go: the kernel does not know them.
    @Test func whatNobodyLookedUpGoesAsWell() throws {
      let (mount, _) = try Self.mount([Node(inode: 53, parent: 50, name: "Season 1", isFolder: true)])
      defer { mount.end() }
      let watch = try Watch("\(mount.path)/lib")
      Self.reload(mount, remove: [51, 53])
      #expect(watch.events(2) == ["-old.mkv", "-Season 1"])
      // And comes back as another file, in one list.
      Self.reload(mount, add: [Node(inode: 60, parent: 50, name: "old.mkv", size: 5)])
      #expect(watch.events(1) == ["+old.mkv"])
      let changed = [
        TreeChange.removed(parent: 50, name: "old.mkv", isFolder: false),
        TreeChange.added(parent: 50, name: "old.mkv", isFolder: false),
      ]
      mount.session.prepare([changed[1]])
      mount.fileSystem.state.withLock { state in
        state.nodes[60]?.parent = 0
        state.nodes[61] = Node(inode: 61, parent: 50, name: "old.mkv", size: 6)
      }
      mount.session.announce(changed)
      #expect(watch.events(2) == ["-old.mkv", "+old.mkv"])
      #expect(mount.sh("stat -c '%i %s' lib/old.mkv").lines == ["61 6"])
    }

    /// The kernel knows the names, and a program is in the folder: it goes on there, and is told of what is new.
    @Test func whatComesBackIsAsItWas() throws {
      let season = Node(inode: 53, parent: 50, name: "Season 1", isFolder: true)
      let files = [
        Node(inode: 54, parent: 53, name: "a.mkv", size: 9), Node(inode: 51, parent: 50, name: "old.mkv", size: 7),
      ]
      let (mount, _) = try Self.mount([season, files[0]])
      defer { mount.end() }
      let (watch, inside) = (try Watch("\(mount.path)/lib"), try Watch("\(mount.path)/lib/Season 1"))
      #expect(mount.sh("stat -c %i lib/old.mkv 'lib/Season 1/a.mkv'").lines == ["51", "54"])
      let folder = open("\(mount.path)/lib/Season 1", O_RDONLY | O_DIRECTORY)
      defer { close(folder) }
      Self.reload(mount, remove: [51, 54, 53])
      #expect(watch.events(2) == ["-old.mkv", "-Season 1"])
      #expect(mount.sh("ls lib").lines.isEmpty)
      Self.reload(mount, add: [season] + files)
      #expect(watch.events(2) == ["+Season 1", "+old.mkv"])
      #expect(mount.sh("cat lib/old.mkv 'lib/Season 1/a.mkv' | wc -c; ls 'lib/Season 1'").lines == ["16", "a.mkv"])
      #expect(mount.sh("stat -c %i lib/old.mkv 'lib/Season 1/a.mkv'").lines == ["51", "54"])
      #expect(faccessat(folder, "a.mkv", F_OK, 0) == 0)
      Self.reload(mount, add: [Node(inode: 55, parent: 53, name: "b.mkv", size: 1)])
      #expect(inside.events(1).suffix(1) == ["+b.mkv"])
      #expect(watch.events().isEmpty)
    }

    /// Whoever is told finds the new file, also if the helper's thread for notifications is late.
    @Test func aFileThatAnotherReplacesIsOneEvent() throws {
      let ends = try makeSocketPair()
      let unread = FileDescriptor(owning: ends.1)
      let (mount, _) = try Self.mount(
        [Node(inode: 52, parent: 50, name: "unread.mkv", size: 3)], notices: FileDescriptor(owning: ends.0))
      defer { mount.end() }
      #expect(mount.sh("stat -c '%i %s' lib/old.mkv").lines == ["51 3000000"])
      let watch = try Watch("\(mount.path)/lib")
      mount.fileSystem.state.withLock { state in
        for (old, new) in [(Inode(51), Inode(61)), (52, 62)] {
          state.nodes[new] = state.nodes[old]
          state.nodes[new]?.inode = new
          state.nodes[new]?.size = Int64(new)
          state.nodes[new]?.behaviour = .sizeless  // a stat would wait for it
          state.nodes[old]?.parent = 0
        }
      }
      mount.session.announce([.replaced(parent: 50, name: "old.mkv"), .replaced(parent: 50, name: "unread.mkv")])
      #expect(watch.events(2) == ["aold.mkv", "aunread.mkv"])
      #expect(mount.sh("stat -c '%i %s' lib/old.mkv lib/unread.mkv").lines == ["61 61", "62 62"])
      withExtendedLifetime(unread) {}
    }

    @Test func filesThatChangeAtTheirOriginAreOneEventEach() throws {
      let (mount, waker) = try Self.mount([Node(inode: 52, parent: 50, name: "same.mkv", size: 3)])
      defer { mount.end() }
      let watch = try Watch("\(mount.path)/lib")
      mount.session.prepare([.added(parent: 50, name: "same.mkv", isFolder: false)])  // of a list that is not there yet
      mount.session.invalidate(parent: 50, name: "same.mkv", isChanged: false)
      mount.session.invalidate(parent: 50, name: "old.mkv", isChanged: true)
      #expect(watch.events(1) == ["aold.mkv"])
      #expect(waker.packets.withLock { $0 } == 1)
      #expect(mount.sh("ls lib").lines == ["old.mkv"], "still hidden")
    }

    @Test func aProgramInAFolderThatGoesHangsNobody() throws {
      let (mount, _) = try Self.mount([Node(inode: 53, parent: 50, name: "Season 1", isFolder: true)])
      defer { mount.end() }
      let watch = try Watch("\(mount.path)/lib")
      let inside = try Program.start(
        """
        cd '\(mount.path)/lib/Season 1'; touch \(mount.folder)/in
        until [ -e \(mount.folder)/go ]; do sleep 0.05; done
        ls; cd ..; ls
        """)
      #expect(eventually { access("\(mount.folder)/in", F_OK) == 0 })
      Self.reload(mount, remove: [53])
      #expect(watch.events(1) == ["-Season 1"])
      close(creat("\(mount.folder)/go", 0o644))
      #expect(inside.wait().lines.last == "old.mkv")
    }

    @Test func untilItIsToldNobodySeesANewName() throws {
      let seen = Lock<[String]>([])
      let path = Lock("")
      let (mount, _) = try Self.mount { letter, name in
        if letter == "c" {
          // Another thread than the waker's.
          let other = OwnedThread(name: "test-other") {
            let file = "\(path.withLock { $0 })/lib/\(name)"
            func tell(_ what: String, _ result: Int32) {
              let error = result < 0 ? "\(errno)" : "done"
              seen.withLock { $0.append("\(what) \(error)") }
            }
            tell("stat", access(file, F_OK))
            tell("mknod", mknod(file, S_IFREG | 0o444, 0))
            tell("create", open(file, O_CREAT | O_WRONLY, 0o644))
            tell("unlink", unlink("\(path.withLock { $0 })/lib/old.mkv"))
            tell("touch", utimensat(AT_FDCWD, "\(path.withLock { $0 })/lib", nil, 0))
          }
          other.join()
          let names = Program.run("ls \(path.withLock { $0 })/lib").lines
          seen.withLock { $0 += names }
        }
        return nil
      }
      defer { mount.end() }
      path.withLock { $0 = mount.path }
      let watch = try Watch("\(mount.path)/lib")
      Self.reload(mount, add: [Node(inode: 52, parent: 50, name: "new.mkv", size: 100)])
      #expect(watch.events(1) == ["+new.mkv"])
      #expect(
        seen.withLock { $0 } == [
          "stat \(ENOENT)", "mknod \(EROFS)", "create \(EROFS)", "unlink \(EROFS)", "touch \(EROFS)", "old.mkv",
        ])
      #expect(mount.sh("ls lib").lines == ["new.mkv", "old.mkv"])
    }

    @Test func aFolderInWhichThousandsOfNamesChangeIsOneEvent() throws {
      let (mount, waker) = try Self.mount()
      defer { mount.end() }
      let many = (0...WakeOrders.mostNames).map { Node(inode: 1000 + Inode($0), parent: 50, name: "\($0)", size: 1) }
      let names = ["old.mkv"] + many.map(\.name)
      mount.session.prepare(names.map { .added(parent: 50, name: $0, isFolder: false) })
      #expect(mount.sh("ls lib").lines == ["old.mkv"], "so many are not hidden")
      let watch = try Watch("\(mount.path)/lib")
      Self.reload(mount, add: many)
      #expect(watch.events(1) == ["a"])
      #expect(mount.sh("ls lib | wc -l; stat -c %i lib/17").lines == ["1002", "1017"])
      #expect(waker.packets.withLock { $0 } == 1)
      Self.reload(mount, remove: many.map(\.inode))
      #expect(watch.events(1) == ["a"])
      #expect(mount.sh("ls lib").lines == ["old.mkv"])
      // Just as many as are told one by one, in several packets.
      let fewer = (0..<WakeOrders.mostNames).map {
        Node(inode: 3000 + Inode($0), parent: 50, name: "name \($0)", size: 1)
      }
      Self.reload(mount, add: fewer)
      #expect(watch.events(fewer.count) == fewer.map { "+" + $0.name })
    }

    /// Whoever is told finds every name, and what is hidden is bounded.
    @Test func tensOfThousandsAreToldByTheirFolders() {
      let folders = (0..<11).map { Node(inode: 100 + Inode($0), parent: rootInode, name: "\(10 + $0)", isFolder: true) }
      let changes = folders.flatMap { folder in
        (0..<WakeOrders.mostNames).map { TreeChange.added(parent: folder.inode, name: "\($0)", isFolder: false) }
      }
      let fileSystem = SyntheticFileSystem(folders)
      let all = WakeOrders(changes, fileSystem) { _ in true }
      #expect(Array(all.touched.keys) == [110] && all.untold.count == WakeOrders.mostNames)
      let some = WakeOrders(Array(changes.prefix(2000)), fileSystem) { $0.parent != 100 }
      #expect(Array(some.touched.keys) == [100] && some.untold.count == WakeOrders.mostNames)
    }

    /// The helper's thread for notifications may be late: no program finds the old listing after the event.
    @Test func aFolderThatIsTouchedIsListedAnew() throws {
      let ends = try makeSocketPair()
      let unread = FileDescriptor(owning: ends.1)
      let (mount, _) = try Self.mount(notices: FileDescriptor(owning: ends.0))
      defer { mount.end() }
      #expect(mount.sh("ls lib").lines == ["old.mkv"])
      let watch = try Watch("\(mount.path)/lib")
      let many = (0...WakeOrders.mostNames).map { Node(inode: 1000 + Inode($0), parent: 50, name: "\($0)", size: 1) }
      Self.reload(mount, add: many)
      #expect(watch.events(1) == ["a"])
      #expect(mount.sh("ls lib | wc -l").lines == ["1002"])
      withExtendedLifetime(unread) {}
    }

    @Test("Without a waker, new names are there and old ones are not", arguments: [EPERM, EPIPE])
    func withoutAWaker(error: Int32) throws {
      let (mount, _) = try Self.mount { _, _ in error }
      defer { mount.end() }
      let looked = mount.sh("ls lib; stat lib/old.mkv >/dev/null; stat lib/new.mkv 2>&1 | grep -c 'No such'")
      #expect(looked.lines == ["old.mkv", "1"])
      let watch = try Watch("\(mount.path)/lib")
      Self.reload(mount, add: [Node(inode: 52, parent: 50, name: "new.mkv", size: 100)], remove: [51])
      #expect(eventually { mount.sh("ls lib").lines == ["new.mkv"] })
      #expect(mount.sh("stat -c %i lib/new.mkv; stat lib/old.mkv 2>&1 | grep -c 'No such'").lines == ["52", "1"])
      #expect(watch.events().isEmpty)
    }

    @Test func namesThatWereHiddenForNothingAreShownByTheNextList() throws {
      let (mount, _) = try Self.mount([Node(inode: 52, parent: 50, name: "back.mkv", size: 1)])
      defer { mount.end() }
      mount.session.prepare([.added(parent: 50, name: "back.mkv", isFolder: false)])  // and no commit follows
      #expect(mount.sh("ls lib").lines == ["old.mkv"])
      mount.session.prepare([])
      mount.session.announce([.added(parent: 50, name: "x", isFolder: false)])
      #expect(eventually { mount.sh("ls lib").lines == ["back.mkv", "old.mkv"] })
    }

    @Test func aHiddenNameHidesNoOtherThatOnlyLooksTheSame() throws {
      let (composed, decomposed) = ("\u{e9}.mkv", "e\u{301}.mkv")
      let (mount, _) = try Self.mount([Node(inode: 52, parent: 50, name: decomposed, size: 1)])
      defer { mount.end() }
      mount.session.prepare([.added(parent: 50, name: composed, isFolder: false)])
      #expect(mount.sh("ls lib; stat -c %i lib/\(decomposed)").lines == [decomposed, "old.mkv", "52"])
    }

    @Test func whoeverWaitsForAnAnnouncementFindsTheNewNames() throws {
      let (mount, _) = try Self.mount { letter, _ in
        if letter == "c" { usleep(100_000) }
        return nil
      }
      defer { mount.end() }
      for number in 0..<3 {
        Self.reload(mount, add: [Node(inode: 60 + Inode(number), parent: 50, name: "\(number)", size: 1)])
        mount.session.settle()
        #expect(mount.sh("stat -c %i lib/\(number)").lines == ["\(60 + number)"])
      }
    }
  }
}
