import CCurses

/// The ncurses that this process runs with.
package enum Ncurses {
  /// Its version, as it tells it itself: `ncurses 6.4.20221231`.
  package static var version: String { String(cString: curses_version()) }
}
