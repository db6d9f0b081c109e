// Three files with fixed names, without comments of others, the same from the same sources each time.
export default {
  root: "src",
  base: "./",
  build: {
    outDir: "../../runtime/gym_view/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    rollupOptions: {
      output: { entryFileNames: "page.js", assetFileNames: "page.[ext]", codeSplitting: false },
    },
  },
};
