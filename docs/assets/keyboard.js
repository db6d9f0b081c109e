// What scrolls sideways can be reached and moved with the keyboard, and landmarks of one kind have different names.
function reachable() {
  for (const box of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0
  }
  document.querySelectorAll(".md-code__nav").forEach((nav, number) => {
    nav.setAttribute("aria-label", `Example ${number + 1}`)
  })
}
addEventListener("DOMContentLoaded", reachable)
addEventListener("load", reachable)
addEventListener("resize", reachable)
